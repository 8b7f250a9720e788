"""Arrays in, arrays out: tables, models and the noisy clipped steps of Algorithm 1."""
