"""Strategies whose nodes hear their neighbours on a graph, and no server: one file each."""
