"""Work on a server's ledger from outside it: backup, bundles, joining, checks."""
