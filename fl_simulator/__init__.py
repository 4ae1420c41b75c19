"""Federations in virtual time, and the data sets and models that they learn with.

``import fl_simulator`` and ``fl_simulator.data`` work without torch; ``fl_simulator.models`` needs it.
"""
