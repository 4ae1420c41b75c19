"""Data sets as NumPy arrays: digits that come along, and readers for MNIST, Fashion-MNIST and CIFAR-10. No
torch.
"""

from fl_simulator.data.digits import load_digits
from fl_simulator.data.rotated import ClientData, rotated_digits

__all__ = ["ClientData", "load_digits", "rotated_digits"]
