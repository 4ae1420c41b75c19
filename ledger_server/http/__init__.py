"""Where the server meets the network: what reaches the application, and what is turned away before it.

Knows nothing of ledgers but their errors' codes. ``limits`` bounds connections and exchanges; ``middleware`` gives each
request its id, log line and metrics; ``access`` decides who may call what; ``body`` and ``strict_json`` read bodies;
``problems`` is the one form of a refusal; ``serve`` runs an application behind all of them.
"""
