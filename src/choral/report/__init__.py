"""Pages that a privacy officer can read, sign and re-check."""
