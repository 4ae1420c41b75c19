"""Models on their way from peers: in a folder, in memory as well while there is room, and never taken for granted.

What came of a model is kept when a connection breaks, so the next peer goes on from there, and when the server ends,
however it ends, so that its next life does. It is hashed as it comes, and again when it is taken up in a later life;
only what hashes to its digest is ever handed out. Nothing is synced: a power cut may take it, and costs a fetch. Used
from the event loop alone, but for ``data``.
"""

import hashlib
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, Final

from fl_core.models import Buffer
from fl_core.types import Digest, digest_of, is_hex_id

MEMORY_BYTES: Final = 64 << 20
"""Room for models in memory; a model that finds none is read from the disk when it is admitted."""
SMALLEST_IN_FILE: Final = 16 << 10
"""Smaller models lie in memory only: fetching one again costs no more than writing it."""
LEFT_BYTES: Final = 256 << 20
"""What is taken over from a former life, those first that came first: they are admitted first."""
LEFT_S: Final = 86_400.0
"""Files that nothing has been written to for so long are thrown away at the next start."""
_PIECE_BYTES: Final = 1 << 20


class _Partial:
    """One model as far as it came: in memory, in a file, or in both.

    Args:
        path: Where its file is or would be; named by the digest.
        size: Of the whole model, in bytes.
        memory: Of that size; None to have it in the file alone.
        file: Open while bytes are still to come; None to have it in memory alone.
    """

    def __init__(self, path: Path, *, size: int, memory: bytearray | None, file: BinaryIO | None) -> None:
        self.path, self.size, self.memory, self._file = path, size, memory, file
        self._is_in_file = file is not None
        self.held = 0
        self.is_complete = False
        self._hash = hashlib.sha256()

    def resume(self) -> None:
        """Take up what the file holds."""
        assert self._file is not None, "nothing but a file outlives its process"
        while piece := self._file.read(_PIECE_BYTES):
            self._count(piece)

    def write(self, piece: Buffer) -> None:
        if self._file is not None:
            try:
                self._file.write(piece)
            except OSError:
                if self.memory is None:
                    raise
                self.forget_file()  # a full disk: then only this life has it
        self._count(piece)

    def _count(self, piece: Buffer) -> None:
        if self.memory is not None:
            self.memory[self.held : self.held + len(piece)] = piece
        self._hash.update(piece)
        self.held += len(piece)

    def finish(self) -> bool:
        """Whether what came is the model."""
        self.is_complete = self.held == self.size and self._hash.hexdigest() == self.path.name
        self.close_file()
        return self.is_complete

    def data(self) -> Buffer | None:
        """Its bytes; None where its file does not hash to its name any more."""
        if (memory := self.memory) is not None:
            return memoryview(memory)[: self.size]
        data = self.path.read_bytes()
        return data if digest_of(data) == self.path.name else None

    def close_file(self) -> None:
        """No more bytes will come in this life."""
        if self._file is not None:
            try:
                self._file.close()  # writes what is left
            except OSError:
                if self.memory is None:
                    raise
            self._file = None

    def forget_file(self) -> None:
        """Remove it; it is hardly worth an error."""
        if self._is_in_file:
            with suppress(OSError):
                self.close_file()
            with suppress(OSError):
                self.path.unlink(missing_ok=True)
            self._file, self._is_in_file = None, False


class Incoming:
    """The models that a gossip node waits for (``fl_core.sync.inbound.IncomingModels``).

    Args:
        folder: For models that are on their way; made when needed.
        size: Of every model, in bytes.
        here: A model that this server has anyway, from memory; None if it is not at hand.
        memory_bytes: Room in memory.
        now_s: Seconds since 1970 UTC, to tell old files.
    """

    def __init__(
        self,
        folder: Path,
        *,
        size: int,
        here: Callable[[Digest], Buffer | None],
        memory_bytes: int = MEMORY_BYTES,
        now_s: Callable[[], float] = time.time,
    ) -> None:
        self._folder, self._size, self._here, self._room = folder, size, here, memory_bytes
        self._partials: dict[Digest, _Partial] = {}
        self._borrowed: dict[Digest, Buffer] = {}
        self._whole: dict[Digest, Buffer] = {}
        """Models that came whole."""
        self._left = self._take_over(now_s())

    def _take_over(self, now_s: float) -> dict[Digest, Path]:
        """Files of a former life that may be of use; others are thrown away."""
        left: dict[Digest, Path] = {}
        try:
            files = sorted((path.stat().st_mtime, path.stat().st_size, path) for path in self._folder.iterdir())
        except OSError:
            return left
        room = LEFT_BYTES
        for changed_s, size, path in files:
            is_wanted = is_hex_id(path.name) and 0 < size <= self._size and changed_s > now_s - LEFT_S
            if is_wanted and (size <= room or not left):
                left[Digest(path.name)] = path
                room -= size
            else:
                with suppress(OSError):  # a server starts all the same
                    path.unlink()
        return left

    def _partial(self, digest: Digest) -> _Partial | None:
        """What came of a model in this life, or in a former one as far as a file shows."""
        path = self._left.pop(digest, None)
        if path is not None:
            try:
                partial = self._partials[digest] = self._new(path, file=path.open("rb+"))
                partial.resume()
            except OSError:
                self.discard(digest)
            else:
                if partial.held == partial.size and not partial.finish():
                    self.discard(digest)
        return self._partials.get(digest)

    def _new(self, path: Path, *, file: BinaryIO | None) -> _Partial:
        memory = None
        if file is None or self._size <= self._room:
            self._room -= self._size
            memory = bytearray(self._size)
        return _Partial(path, size=self._size, memory=memory, file=file)

    def _new_file(self, path: Path) -> BinaryIO | None:
        """For a model to be written to; None when it is not worth one."""
        if self._size < SMALLEST_IN_FILE <= self._room:
            return None
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            return path.open("wb")
        except OSError:
            if self._size <= self._room:
                return None
            raise

    def is_complete(self, digest: Digest) -> bool:
        """See ``IncomingModels``; a model that is at hand already counts, and is held on to."""
        if digest in self._whole:
            return True
        if (partial := self._partial(digest)) is not None:
            return partial.is_complete
        if digest not in self._borrowed and (data := self._here(digest)) is not None:
            self._borrowed[digest] = data
        return digest in self._borrowed

    def take_whole(self, digest: Digest, model: Buffer) -> bool:
        """Keep in memory a model that came with its announcement, or out of a shared bucket, and hashes to its digest.

        Returns:
            Whether; not when it is here, has another size, or finds no room.
        """
        if len(model) != self._size or self._size > self._room or self.is_complete(digest):
            return False
        self._room -= self._size
        self._whole[digest] = model
        return True

    def bytes_held(self, digest: Digest) -> int:
        partial = self._partial(digest)
        return 0 if partial is None else partial.held

    def begin(self, digest: Digest, *, start: int) -> bool:
        """Whether bytes from ``start`` on are what comes next; from 0 on, what came before is thrown away.

        Raises:
            OSError: There is no room, in memory or on the disk.
        """
        if start == 0:
            self.discard(digest)
            path = self._folder / digest
            self._partials[digest] = self._new(path, file=self._new_file(path))
        partial = self._partials.get(digest)
        return partial is not None and partial.held == start and not partial.is_complete

    def write(self, digest: Digest, piece: Buffer) -> bool:
        """Add bytes; False when there are more than the model has, which discards it.

        Raises:
            OSError: There is no room, in memory or on the disk.
        """
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
        if not partial.finish():
            self.discard(digest)
            return False
        return True

    def data(self, digest: Digest) -> Buffer | None:
        """A complete model's bytes, which hash to its digest; None where a file does not any more.

        For a thread: what found no room in memory is read from its file, and hashed.

        Raises:
            OSError: The file cannot be read.
        """
        if (whole := self._borrowed.get(digest) or self._whole.get(digest)) is not None:
            return whole
        partial = self._partials.get(digest)
        return partial.data() if partial is not None and partial.is_complete else None

    def discard(self, digest: Digest) -> None:
        """Let go of a model, whatever came of it, in this life or in a former one."""
        self._borrowed.pop(digest, None)
        if self._whole.pop(digest, None) is not None:
            self._room += self._size
        if (partial := self._let_go(digest)) is not None:
            partial.forget_file()
        elif (path := self._left.pop(digest, None)) is not None:
            with suppress(OSError):
                path.unlink()

    def _let_go(self, digest: Digest) -> _Partial | None:
        partial = self._partials.pop(digest, None)
        if partial is not None and partial.memory is not None:
            partial.memory = None
            self._room += partial.size
        return partial

    def close(self) -> None:
        """Let go of all; files stay for the next life."""
        self._borrowed.clear()
        for digest in list(self._partials):
            partial = self._let_go(digest)
            with suppress(OSError):
                assert partial is not None, "listed"
                partial.close_file()
