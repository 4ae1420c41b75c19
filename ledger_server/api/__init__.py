"""HTTP routes, version 1. Each module answers one kind of question; ``ledger_server.app`` joins them."""
