"""Transactions, their signatures, genesis, and the rules by which they enter the graph."""
