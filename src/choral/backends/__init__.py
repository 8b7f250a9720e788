"""Places where a round runs: one compiled call, a transport in memory, or Flower."""
