"""Questions as sums over rows: what each one adds up, how far one row can move it, and what the sum says."""
