"""The protocol as messages: what server and client both import, one module per version."""
