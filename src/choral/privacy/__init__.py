"""Numbers about loss: what a run costs a device, and the ledger that lets it say no. Knows no JAX."""
