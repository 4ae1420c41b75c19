"""What the system means: the ledger's rules, tip selection, aggregation, the wire format.

Pure: no clock, no disk, no network, no async, no global randomness. Time, randomness and model
vectors are arguments; ``ledger_server``, ``fl_client`` and ``fl_simulator`` bring them.
"""
