"""Ledger servers in virtual time: the core's node and signatures, without sockets and clocks.

``server`` is one node that receives transactions in any order, ``network`` several of them and what travels between,
``selector_pool`` runs a selector for many clients in several processes, ``record`` is all that was ever published, as a
file can hold it.
"""
