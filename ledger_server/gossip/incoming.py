"""Models on their way from peers: in memory while there is room, else in a folder, and never taken for granted.

What came of a model is kept when a connection breaks, so the next peer goes on from there. It is hashed as it comes;
only what hashes to its digest is ever handed out. Files of a former life are thrown away: what was not admitted is
fetched again. Used from the event loop alone, except ``take``.
"""

import hashlib
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, Final

from fl_core.types import Digest
from fl_core.weights import Buffer
from ledger_server.buffers import UploadBuffers

MEMORY_BYTES: Final = 64 << 20
"""Room for models in memory; a model that finds none goes to the disk."""


class _Partial:
    """One model as far as it came."""

    def __init__(self, size: int, memory: bytearray | memoryview | None, file: BinaryIO | None, path: Path) -> None:
        self.size, self.memory, self.file, self.path = size, memory, file, path
        self.held = 0
        self.is_complete = False
        self.hash = hashlib.sha256()

    def write(self, piece: bytes) -> None:
        if self.memory is not None:
            self.memory[self.held : self.held + len(piece)] = piece
        else:
            assert self.file is not None, "a partial lies in memory or in a file"
            self.file.write(piece)
        self.hash.update(piece)
        self.held += len(piece)

    def data(self) -> Buffer:
        if self.memory is not None:
            return memoryview(self.memory)[: self.size]
        assert self.file is not None, "a partial lies in memory or in a file"
        self.file.flush()
        return self.path.read_bytes()

    def close(self) -> None:
        self.memory = None
        if self.file is not None:
            self.file.close()
            self.path.unlink(missing_ok=True)
            self.file = None


class Incoming:
    """The blob store of a gossip node (``fl_core.gossip.node.HeldBlobs``).

    Args:
        folder: For what finds no room in memory; made when needed.
        here: A model that this server has anyway, from memory; None if it is not at hand.
        uploads: Lends memory of a model's size.
        memory_bytes: Room in memory.
    """

    def __init__(
        self,
        folder: Path,
        *,
        here: Callable[[Digest], Buffer | None],
        uploads: UploadBuffers,
        memory_bytes: int = MEMORY_BYTES,
    ) -> None:
        self._folder, self._here, self._uploads, self._room = folder, here, uploads, memory_bytes
        self._partials: dict[Digest, _Partial] = {}
        self._borrowed: dict[Digest, Buffer] = {}
        with suppress(FileNotFoundError):
            for path in folder.iterdir():
                path.unlink(missing_ok=True)

    def is_complete(self, digest: Digest) -> bool:
        """See ``HeldBlobs``; a model that is at hand already counts, and is held on to."""
        partial = self._partials.get(digest)
        if partial is not None:
            return partial.is_complete
        if digest not in self._borrowed and (data := self._here(digest)) is not None:
            self._borrowed[digest] = data
        return digest in self._borrowed

    def bytes_held(self, digest: Digest) -> int:
        """See ``HeldBlobs``."""
        partial = self._partials.get(digest)
        return 0 if partial is None else partial.held

    def begin(self, digest: Digest, *, size: int, start: int) -> bool:
        """Whether bytes from ``start`` on are what comes next; from 0 on, what came before is thrown away."""
        if start == 0:
            self.discard(digest)
            self._partials[digest] = self._new(digest, size)
        partial = self._partials.get(digest)
        return partial is not None and partial.held == start and not partial.is_complete

    def _new(self, digest: Digest, size: int) -> _Partial:
        path = self._folder / digest
        if size <= self._room:
            self._room -= size
            return _Partial(size, self._uploads.lend(size), None, path)
        self._folder.mkdir(parents=True, exist_ok=True)
        return _Partial(size, None, path.open("wb+"), path)

    def write(self, digest: Digest, piece: bytes) -> bool:
        """Add bytes; False when there are more than the model has, which discards it."""
        partial = self._partials[digest]
        if partial.held + len(piece) > partial.size:
            self.discard(digest)
            return False
        partial.write(piece)
        return True

    def finish(self, digest: Digest) -> bool | None:
        """Whether all of it came and hashes to its digest (else it is thrown away); None while bytes are missing."""
        partial = self._partials.get(digest)
        if partial is None or partial.held < partial.size:
            return None
        if partial.hash.hexdigest() != digest:
            self.discard(digest)
            return False
        partial.is_complete = True
        return True

    def data(self, digest: Digest) -> Buffer | None:
        """A complete model's bytes."""
        if (borrowed := self._borrowed.get(digest)) is not None:
            return borrowed
        partial = self._partials.get(digest)
        return partial.data() if partial is not None and partial.is_complete else None

    def discard(self, digest: Digest) -> None:
        """Let go of a model, whatever came of it."""
        self._borrowed.pop(digest, None)
        partial = self._partials.pop(digest, None)
        if partial is not None:
            if partial.memory is not None:
                self._room += partial.size
            partial.close()

    def close(self) -> None:
        """Let go of all."""
        for digest in [*self._partials, *self._borrowed]:
            self.discard(digest)
