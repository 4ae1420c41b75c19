"""How ledgers become equal without a coordinator: what servers say to one another and when. No I/O here."""
