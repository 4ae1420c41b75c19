"""Several servers on one prefix of a bucket: a model is deleted when every one of them has let it go.

Beside the models lie, under the prefix,

    journal                  ``shared LEDGER``, instead of one server's journal
    servers/JOURNAL          for each server that uses the models, by the id of its journal; it names the machine
    let-go/DIGEST/JOURNAL    that server's journal has recorded the model as pruned
    let-go/DIGEST/now-TOKEN  a process is about to delete the model

A server lets go what its own journal has recorded as pruned and nothing else: what it does not know may be another's,
who has acknowledged it. What it holds it takes back, whoever has marked that in its name. So a model stays while any
server holds it, has not heard of it, or is away. One that has left for good holds up deletions, and nothing else, until
a person deletes its object under ``servers/``.

Whoever finds that all have let go deletes. A server that takes a model back, because an update brings it again, removes
its mark and then looks whether somebody is about to delete; who is says so first, and then looks whether all marks are
there. S3 shows a finished write to every later read, so one of the two sees the other and gives way. A crash leaves
marks, which the next pass goes on from, or a model without marks, which is let go again.
"""

import secrets
import socket
import time
from collections.abc import Callable, Collection, Iterator
from datetime import UTC, datetime, timedelta
from itertools import groupby
from typing import TYPE_CHECKING, Final

from fl_core.types import Digest, is_hex_id
from ledger_server.store.errors import StoreUnavailableError

if TYPE_CHECKING:
    from ledger_server.store.blobs.s3 import S3Blobs

_SERVERS: Final = "servers"
_LET_GO: Final = "let-go"
_NOW: Final = "now-"
_LONGEST_S: Final = 600.0
"""Nobody deletes later than this after it has said so."""
_LEFT_OVER: Final = timedelta(minutes=20)
"""Of a process that said so longer ago, nothing is to come; S3's clock and ours differ by minutes at most."""


class Sharing:
    """One server's part in a prefix that several share; may be used by many threads and processes.

    All methods raise ``StoreUnavailableError`` where the bucket does not do what was asked.

    Args:
        blobs: The prefix.
        journal: The id of this server's journal.
    """

    def __init__(self, blobs: "S3Blobs", journal: str) -> None:
        self._blobs, self._journal = blobs, journal

    def register(self) -> None:
        """Have every model that this server does not let go kept, from now on.

        Raises:
            StoreUnavailableError: A server deletes models that may have counted those it asks before this one came.
        """
        self._blobs.write(f"{_SERVERS}/{self._journal}", f"{socket.gethostname()}\n".encode())
        if any(name.startswith(_NOW) and not _is_old(at) for _, name, at in self._marks()):
            self._blobs.delete(f"{_SERVERS}/{self._journal}")
            raise StoreUnavailableError(
                "another server is deleting models from the bucket; try again in a second, or, if it was killed "
                f"meanwhile, in {_LEFT_OVER // timedelta(minutes=1)} minutes"
            )

    def is_registered(self) -> bool:
        return self._journal in self.servers()

    def servers(self) -> set[str]:
        """All that use the models, by the ids of their journals."""
        return {key.rpartition("/")[2] for key, _ in self._blobs.objects(_SERVERS)}

    def let_go(self, digest: Digest) -> None:
        self._blobs.write(f"{_LET_GO}/{digest}/{self._journal}", b"")

    def take_back(self, digest: Digest) -> None:
        """Need a model again that was let go; it may be gone by now, so put it.

        Raises:
            StoreUnavailableError: It is being deleted just now.
        """
        self._blobs.delete(f"{_LET_GO}/{digest}/{self._journal}")
        if any(name.startswith(_NOW) and not _is_old(at) for _, name, at in self._marks(digest)):
            raise StoreUnavailableError("the model is just being deleted from the bucket; try again in a second")

    def mine(self) -> set[Digest]:
        """What this server has let go and others have not."""
        return {digest for digest, name, _ in self._marks() if name == self._journal}

    def collect(self, holds: Callable[[Digest], bool]) -> int:
        """Delete what all have let go; returns how many models.

        Args:
            holds: Whether this server's journal holds a model, as it is now.
        """
        deleted = 0
        servers = self.servers()
        for digest, marks in groupby(self._marks(), key=lambda mark: mark[0]):
            names = {name: at for _, name, at in marks}
            for name in [name for name, at in names.items() if name.startswith(_NOW) and _is_old(at)]:
                self._blobs.delete(f"{_LET_GO}/{digest}/{name}")
            if not self._may_go(names, servers):
                continue
            if holds(digest):  # marked by somebody else, or before the journal was put back from a copy
                self.take_back(digest)
            else:
                deleted += self._delete(digest)
        return deleted

    def _may_go(self, names: Collection[str], servers: set[str]) -> bool:
        """Whether all have let go; one that was taken off the list deletes nothing."""
        return self._journal in servers and all(each in names for each in servers)

    def _delete(self, digest: Digest) -> bool:
        """Delete a model, unless a server has taken it back."""
        said, said_s = f"{_NOW}{secrets.token_hex(8)}", time.time()
        self._blobs.write(f"{_LET_GO}/{digest}/{said}", b"")
        try:
            names = {name for _, name, _ in self._marks(digest) if not name.startswith(_NOW)}
            if not self._may_go(names, self.servers()):
                return False
            # Marks first: none may be left without its model, since that may come again under another update.
            for name in names:
                self._blobs.delete(f"{_LET_GO}/{digest}/{name}")
            if time.time() - said_s > _LONGEST_S:
                return False
            self._blobs.delete(digest)
            return True
        finally:
            self._blobs.delete(f"{_LET_GO}/{digest}/{said}")

    def _marks(self, digest: Digest | None = None) -> Iterator[tuple[Digest, str, datetime]]:
        """What is marked, by whom, and since when; those of one model one behind another."""
        for key, at in self._blobs.objects(_LET_GO if digest is None else f"{_LET_GO}/{digest}"):
            _, _, mark = key.partition("/")
            of, _, name = mark.partition("/")
            if is_hex_id(of) and name and "/" not in name:  # what somebody else has put there stops nobody
                yield Digest(of), name, at


def _is_old(at: datetime) -> bool:
    return at < datetime.now(UTC) - _LEFT_OVER
