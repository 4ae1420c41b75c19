"""What keeps a request to a peer from having a response."""

import re
from typing import Final

from fl_core.sync.effects import Failure
from ledger_server.http.problem_types import PROBLEM_TYPES

_CODE: Final = re.compile(rb'"type":\s*"/problems/([a-z-]{1,40})"')
_READ_BYTES: Final = 4096

_ADVICE: Final = {
    "peer-unknown": "this server is no member that it knows; a member adds it with: dag-acfl members add",
    "peer-signature-stale": "it has just started, or its clock and this server's differ by more than 60 s: see that "
    "both run NTP",
    "peer-wrong-recipient": "it has another key than the members' acts and this server's setting peers say",
    "peer-banned": "it takes nothing from this server any more; its log says why",
}
"""What to do about a refusal, for the log."""


class LinkError(Exception):
    """A request has no response that could be used.

    Args:
        kind: Why, in the node's terms.
        detail: For the log.
        status: Of the answer, where it was one that says no.
        code: The problem that it named, where that is one of ours.
    """

    def __init__(self, kind: Failure, detail: str, *, status: int = 0, code: str = "") -> None:
        super().__init__(detail)
        self.kind: Failure = kind
        self.status: int = status
        self.code: str = code

    @classmethod
    def refused(cls, status: int, answer: bytes = b"") -> "LinkError":
        """A peer's answer that says no."""
        found = _CODE.search(answer[:_READ_BYTES])
        code = found[1].decode() if found and found[1].decode() in PROBLEM_TYPES else ""
        advice = f": {_ADVICE[code]}" if code in _ADVICE else ""
        return cls(Failure.REFUSED, f"{status} {code}".strip() + advice, status=status, code=code)
