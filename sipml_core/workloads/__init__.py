"""Models to train: ResNet, Transformer, GPT, and how many steps they need."""
