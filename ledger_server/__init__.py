"""What the system means, on a machine: a database, an HTTP API, caches and processes around ``fl_core``."""
