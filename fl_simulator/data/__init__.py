"""Data sets as NumPy arrays: digits that come along; MNIST, Fashion-MNIST, CIFAR-10, EMNIST letters. Never torch."""
