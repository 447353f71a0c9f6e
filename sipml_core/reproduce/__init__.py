"""The experiments of the SiP-ML paper's evaluation: files, what runs them, what they claim."""
