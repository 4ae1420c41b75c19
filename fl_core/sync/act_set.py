"""The acts that a server holds, as gossip sees them: a set that only grows, compared by one digest.

Two copies of an act with different signatures are different here, and become one with the signatures of both. A server
whose summary names another digest is asked for the acts that are not here, or have other signers there.
"""

from collections.abc import Iterable
from typing import Final

from fl_core.dag.acts import SignedAct, acts_digest
from fl_core.errors import ActInvalidError
from fl_core.types import Digest, TxId

MAX_ANSWER_ACTS: Final = 20_000
"""Acts in one answer."""

MAX_REFUSED: Final = 1000
"""Digests of acts that this server does not keep."""

MAX_ANSWER_BYTES: Final = 512 * 1024
"""Acts in one answer; what does not fit is asked for again."""


class ActSet:
    """The acts of one ledger.

    Args:
        ledger: Its id.
    """

    def __init__(self, ledger: TxId) -> None:
        self._ledger = ledger
        self._acts: dict[TxId, SignedAct] = {}
        self._digests: dict[TxId, Digest] = {}
        self._refused: dict[Digest, None] = {}
        self._digest: Digest | None = None

    def __len__(self) -> int:
        return len(self._acts)

    @property
    def digest(self) -> Digest:
        """What two servers compare; computed when it is asked for, not with each of many acts that come together."""
        if self._digest is None:
            self._digest = acts_digest(self._acts.values())
        return self._digest

    def all(self) -> tuple[SignedAct, ...]:
        """Every act, ascending by id."""
        return tuple(self._acts[identity] for identity in sorted(self._acts))

    def digests(self) -> tuple[Digest, ...]:
        """What a peer need not send: one digest for each act and its signers, also of those that were refused."""
        return (*(self._digests[each] for each in sorted(self._acts)), *self._refused)

    def refuse(self, signed: SignedAct) -> None:
        """Do not ask for an act again as it stands: nobody whose word counts has signed it.

        A peer may keep it all the same, as that of a member who has been removed since. When another act is kept,
        members may be others, and the peers are asked again.
        """
        if len(self._refused) < MAX_REFUSED:
            self._refused[acts_digest([signed])] = None

    def new_among(self, acts: Iterable[SignedAct]) -> tuple[SignedAct, ...]:
        """Those that are not here, or have signatures that are not. No signature is verified.

        Raises:
            ActInvalidError: An act is of another ledger, or no act at all.
        """
        new = []
        for signed in acts:
            if signed.act.ledger != self._ledger:
                raise ActInvalidError("an act of another ledger")
            held = self._acts.get(signed.id)
            if held is None or held.merged(signed) != held:
                new.append(signed)
        return tuple(new)

    def merge(self, acts: Iterable[SignedAct]) -> int:
        """Take in acts that the server keeps, with verified signatures. Returns how many are new or have new ones.

        Raises:
            ActInvalidError: As ``new_among``; nothing is taken in.
        """
        new = self.new_among(acts)
        for signed in new:
            held = self._acts.get(signed.id)
            self._acts[signed.id] = signed if held is None else held.merged(signed)
            self._digests[signed.id] = acts_digest([self._acts[signed.id]])
        if new:
            self._refused.clear()
            self._digest = None
        return len(new)

    def besides(self, known: Iterable[Digest]) -> tuple[SignedAct, ...]:
        """The acts whose digest is not among these, as many as fit into one answer."""
        here = set(known)
        lacking: list[SignedAct] = []
        size = 0
        for act in self.all():
            if self._digests[act.id] not in here:
                size += len(act.encode())
                if lacking and size > MAX_ANSWER_BYTES:
                    break
                lacking.append(act)
        return tuple(lacking)
