"""`dag-acfl demo`: one ledger server and many clients, as processes on this machine, beside two baselines."""
