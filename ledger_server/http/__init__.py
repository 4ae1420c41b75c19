"""Where the server meets the network: what reaches the application, and what is turned away before it.

Knows nothing of ledgers. ``protocol`` guards a connection, ``middleware`` a request, ``strict_json`` a body;
``problems`` says no in one form; ``serve`` runs an application behind all of them.
"""
