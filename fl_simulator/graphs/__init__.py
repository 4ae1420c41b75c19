"""Graphs of clients: topologies, mixing matrices, links, and gains of initialisation."""
