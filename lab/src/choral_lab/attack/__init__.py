"""Demonstrations of what an update reveals."""
