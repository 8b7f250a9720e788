"""Tools of the house: they look at the repository and are no part of choral."""
