"""What keeps a request to a peer from having a response."""

from fl_core.sync.effects import Failure


class LinkError(Exception):
    """A request has no response that could be used.

    Args:
        kind: Why, in the node's terms.
        detail: For the log.
    """

    def __init__(self, kind: Failure, detail: str) -> None:
        super().__init__(detail)
        self.kind = kind
