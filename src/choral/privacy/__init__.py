"""Numbers about loss: what a run costs a device, and the ledger that lets it say no. No JAX, no I/O but the ledger's file."""
