"""A Flower app as they were before the Message API: NumPyClient, client_fn, server_fn."""
