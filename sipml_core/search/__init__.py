"""Search for the strategy with the least time-to-accuracy."""
