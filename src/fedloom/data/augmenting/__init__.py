"""Training batches, changed on their way in."""
