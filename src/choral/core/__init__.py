"""What a device is trusted with stands here; the package imports nothing else of choral."""
