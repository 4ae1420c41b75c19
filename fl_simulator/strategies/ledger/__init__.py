"""Strategies on a ledger."""
