"""What survives a crash: a journal in memory whose appends take time, and the models on their way in.

An append that has begun is lost when the server crashes before it is done, or survives without ever having
been acknowledged; both happen on real disks. A model on its way in survives as some beginning of itself.
"""

import random
from dataclasses import dataclass, field

from fl_core.joining import ServedCheckpoint
from fl_core.sync.messages import Peer, TransactionBundle
from fl_core.types import Digest, TxId, digest_of


@dataclass(frozen=True, slots=True)
class Entry:
    """One row: a transaction with its model, written as one."""

    bundle: TransactionBundle
    model: bytes | None
    """None: a checkpoint stands for it."""
    norm: float

    @property
    def id(self) -> TxId:
        return self.bundle.transaction.id


@dataclass(slots=True)
class Disk:
    """One server's disk. It is the node's ``IncomingModels`` and the responder's ``Journal``."""

    epoch: str
    entries: list[Entry] = field(default_factory=list)
    cursors: dict[Peer, str] = field(default_factory=dict)
    incoming: dict[Digest, bytearray] = field(default_factory=dict)
    is_full: bool = False
    pruned: set[Digest] = field(default_factory=set)
    checkpoints: dict[Peer, ServedCheckpoint] = field(default_factory=dict)
    _by_id: dict[TxId, Entry] = field(default_factory=dict)
    _models: dict[Digest, bytes] = field(default_factory=dict)

    def append(self, entry: Entry) -> None:
        """Durable from here on."""
        assert entry.id not in self._by_id, "a row is written once"
        self.entries.append(entry)
        self._by_id[entry.id] = entry
        digest = entry.bundle.transaction.header.model_digest
        if entry.model is None:
            self.pruned.add(digest)
        else:
            self._models[digest] = entry.model
            self.pruned.discard(digest)
        self.incoming.pop(digest, None)

    def prune(self, digests: set[Digest]) -> None:
        """Drop these models, for good."""
        for digest in digests & self._models.keys():
            del self._models[digest]
            self.pruned.add(digest)

    def __contains__(self, transaction: TxId) -> bool:
        return transaction in self._by_id

    def crash(self, rng: random.Random) -> None:
        """Models on their way in lose some of their last bytes, or all."""
        for digest, data in list(self.incoming.items()):
            del data[rng.randrange(len(data) + 1) :]
            if not data:
                del self.incoming[digest]

    # -- Journal

    def count(self) -> int:
        return len(self.entries)

    def ids_from(self, arrival: int, limit: int) -> list[TxId]:
        return [entry.id for entry in self.entries[arrival : arrival + limit]]

    def bundle(self, transaction: TxId) -> TransactionBundle | None:
        entry = self._by_id.get(transaction)
        return None if entry is None else entry.bundle

    # -- HeldBlobs

    def model(self, digest: Digest) -> bytes | None:
        """A model of the ledger, or one that has come in whole."""
        if (held := self._models.get(digest)) is not None:
            return held
        data = bytes(self.incoming.get(digest, b""))
        return data if digest_of(data) == digest else None

    def is_complete(self, digest: Digest) -> bool:
        return self.model(digest) is not None

    def bytes_held(self, digest: Digest) -> int:
        return len(self.incoming.get(digest, b""))
