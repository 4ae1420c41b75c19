"""Gossip on a machine: ``fl_core.gossip`` decides, this package moves bytes to and from peers."""
