"""The command ``dag-acfl``: a thin layer over server, client and simulator that nothing imports."""
