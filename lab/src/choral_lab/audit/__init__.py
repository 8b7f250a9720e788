"""Lower bounds on ε, measured."""
