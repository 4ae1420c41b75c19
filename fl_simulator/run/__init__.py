"""Running: one run, many at once, and the folders that keep them."""
