"""A Flower app with central differential privacy, clipped by a mod of the client."""
