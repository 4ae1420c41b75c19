"""A Flower app of the Message API whose model has BatchNorm."""
