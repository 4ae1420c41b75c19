"""What keeps a request to a peer from having a response."""

from fl_core.sync.effects import Failure


class LinkError(Exception):
    """A request has no response that could be used.

    Args:
        kind: Why, in the node's terms.
        detail: For the log.
        status: Of the answer, where it was one that says no.
    """

    def __init__(self, kind: Failure, detail: str, *, status: int = 0) -> None:
        super().__init__(detail)
        self.kind, self.status = kind, status
        self.is_unwelcome = status in (401, 403)
        """Whether the peer does not believe this server's signature or has banned it: its operator's to mend."""
