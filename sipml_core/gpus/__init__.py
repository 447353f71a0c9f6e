"""Time and memory of GPUs."""
