"""One round as two state machines, without I/O and without learning."""
