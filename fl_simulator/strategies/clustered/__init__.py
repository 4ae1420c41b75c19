"""Strategies with a server that groups its clients."""
