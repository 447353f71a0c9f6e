"""The nouns every other room speaks of: frozen attrs classes over numpy arrays, free of I/O."""
