"""What somebody computes who plans or compares a run; what is charged is decided in the core."""
