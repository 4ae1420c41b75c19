"""`dag-acfl demo`: ledger servers that gossip and many clients, as processes on this machine, beside two baselines."""
