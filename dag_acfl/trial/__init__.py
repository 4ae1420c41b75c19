"""``dag-acfl try`` and ``demo``: servers and clients of one file as processes of this machine, beside two baselines."""
