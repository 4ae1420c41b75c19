"""Gossip on a machine: ``fl_core.sync`` decides, this package moves bytes to and from peers."""
