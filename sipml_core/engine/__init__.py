"""Runs a task graph on a network: in C, and in plain Python as the reference."""
