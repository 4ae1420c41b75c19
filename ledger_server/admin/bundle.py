"""The bundle: one file ``*.dagacfl`` that holds a whole ledger, to keep, to send and to verify offline.

An uncompressed POSIX tar (``tar tf`` lists it; models do not compress), in this order:

    manifest.json               {"format": "dag-acfl/bundle/v1", "version", "ledger", "transactions"}
    transactions.jsonl          one a line: id, header, author_signature, receipt (hex)
    attachments/<digest>.json   the genesis document and each selection's evidence
    models/<digest>.safetensors
    acts.bin                    where members have decided something: their signed acts (docs/protocol.md)
    pruned.txt                  where models were pruned: their digests, ascending, one a line
    archived.txt                where evidence was archived: its digests, likewise
    checkpoints.bin             where the server joined by checkpoints: 4 bytes length each, then ``fl_core.joining``'s

An archive (``ledger_server.admin.archive``) is one too: its manifest says ``"archive": true``, it holds the beginning
of a ledger, and of the models genesis's alone.

The reader takes only what the writer writes: plain files with these names, each once. It never unpacks
anything to disk, so a name can lead nowhere, and it reads no more at a time than the caps below or one
model. Whether the content is sound is ``fl_core.verify``'s question, not this module's.
"""

import json
import os
import re
import struct
import tarfile
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from io import BytesIO
from pathlib import Path
from typing import IO, BinaryIO, Final, Self

from fl_core.dag.receipt import decode_receipt
from fl_core.dag.transaction import Transaction, decode_header
from fl_core.errors import DagAcflError, SignatureError
from fl_core.types import ZERO_ID, Digest, is_hex_id
from fl_core.verify import LedgerSource
from fl_core.version import installed_version

FORMAT: Final = "dag-acfl/bundle/v1"
MANIFEST: Final = "manifest.json"
TRANSACTIONS: Final = "transactions.jsonl"
ACTS: Final = "acts.bin"
PRUNED: Final = "pruned.txt"
ARCHIVED: Final = "archived.txt"

MAX_MANIFEST_BYTES: Final = 1 << 16
MAX_LINE_BYTES: Final = 1 << 18
"""A header with 1,024 parents and 32 metrics takes 70 KB as hexadecimal digits."""
MAX_ATTACHMENT_BYTES: Final = 16 << 20

MAX_ACTS_BYTES: Final = 1 << 28
CHECKPOINTS: Final = "checkpoints.bin"
MAX_CHECKPOINTS_BYTES: Final = 1 << 30

_BLOCK: Final = 512
_LENGTH: Final = struct.Struct(">I")
_DIGEST_LINE: Final = 65
_DIGEST: Final = re.compile(rb"[0-9a-f]{64}")
_NAME: Final = re.compile(
    r"manifest\.json|transactions\.jsonl|pruned\.txt|archived\.txt|acts\.bin|checkpoints\.bin|attachments/[0-9a-f]{64}\.json|models/[0-9a-f]{64}\.safetensors"
)


class BundleError(DagAcflError):
    """The file is not a bundle, or is cut off or damaged as a container."""

    code = "bundle-malformed"


def write_bundle(source: LedgerSource, path: Path, *, progress: Callable[[int, int], None] | None = None) -> int:
    """Write a ledger to one file; it appears under its name only when it is whole and on disk.

    It holds every model, so only its owner may read it (0600, as ``mkstemp`` makes it).

    Args:
        source: The ledger. What it lacks is left out, as ``verify`` will say; what it says was pruned or archived is
            named.
        path: The file to make or replace.
        progress: Called with the number of files written and their total.

    Returns:
        The number of transactions.

    Raises:
        OSError: The file cannot be written.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as file, tempfile.TemporaryFile(dir=path.parent) as lines:
            count = _write(source, file, lines, progress or (lambda _done, _total: None))
            file.flush()
            os.fsync(file.fileno())
        Path(name).replace(path)
    except BaseException:
        with suppress(OSError):
            Path(name).unlink()
        raise
    return count


def _write(source: LedgerSource, file: BinaryIO, lines: IO[bytes], progress: Callable[[int, int], None]) -> int:
    # The size of a tar member stands before it, so the lines are counted in a file of their own first.
    attachments: dict[Digest, None] = {}
    models: dict[Digest, None] = {}
    count = 0
    for claimed, transaction in source.transactions():
        lines.write(_line(claimed, transaction))
        count += 1
        header = decode_header(transaction.header_bytes)
        models[header.model_digest] = None
        if header.attachment_digest != ZERO_ID:
            attachments[header.attachment_digest] = None
    manifest = {
        "format": FORMAT,
        "version": installed_version(),
        "ledger": source.ledger,
        "transactions": count,
        **({"archive": True} if source.is_archive else {}),
    }
    total = len(attachments) + len(models)
    pruned: list[Digest] = []
    with tarfile.open(fileobj=file, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        _add(tar, MANIFEST, json.dumps(manifest, indent=2).encode() + b"\n")
        size = lines.tell()
        lines.seek(0)
        tar.addfile(_member(TRANSACTIONS, size), lines)
        archived = _add_attachments(tar, source, attachments, lambda done: progress(done, total))
        for done, digest in enumerate(models, start=len(attachments) + 1):
            if (model_size := source.model_size(digest)) is not None:
                member = _member(f"models/{digest}.safetensors", model_size)
                tar.addfile(member, _ModelFile(source, digest, model_size))
            elif source.is_pruned(digest):
                pruned.append(digest)
            progress(done, total)
        checkpoints = b"".join(_LENGTH.pack(len(each)) + each for each in source.checkpoints())
        lists = ((PRUNED, _lines(pruned)), (ARCHIVED, _lines(archived)))
        for name, data in ((ACTS, source.acts()), (CHECKPOINTS, checkpoints), *lists):
            if data:
                _add(tar, name, data)
    return count


def _add_attachments(
    tar: tarfile.TarFile, source: LedgerSource, digests: Iterable[Digest], progress: Callable[[int], None]
) -> list[Digest]:
    """Write those that the source has; which of the others it has archived."""
    archived: list[Digest] = []
    for done, digest in enumerate(digests, start=1):
        if (attachment := source.attachment(digest)) is not None:
            _add(tar, f"attachments/{digest}.json", attachment)
        elif source.is_archived(digest):
            archived.append(digest)
        progress(done)
    return archived


def _line(claimed: str, transaction: Transaction) -> bytes:
    signature = transaction.author_signature
    content = {
        "id": claimed,
        "header": transaction.header_bytes.hex(),
        "author_signature": None if signature is None else signature.hex(),
        "receipt": transaction.receipt.encode().hex(),
    }
    return json.dumps(content, separators=(",", ":")).encode() + b"\n"


def _lines(digests: list[Digest]) -> bytes:
    return "".join(f"{digest}\n" for digest in sorted(digests)).encode("ascii")


def _member(name: str, size: int) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.size, member.mode = size, 0o644
    return member


def _add(tar: tarfile.TarFile, name: str, data: bytes) -> None:
    tar.addfile(_member(name, len(data)), BytesIO(data))


class _ModelFile(BytesIO):
    """A stored model as the file object that ``tarfile`` copies from, a piece at a time."""

    def __init__(self, source: LedgerSource, digest: Digest, size: int) -> None:
        super().__init__()
        self._source, self._digest, self._size, self._at = source, digest, size, 0

    def read(self, size: int | None = -1, /) -> bytes:
        wanted = self._size if size is None or size < 0 else size
        stop = min(self._at + wanted, self._size)
        data = self._source.read_model(self._digest, self._at, stop) if stop > self._at else b""
        self._at += len(data)
        return data


class Bundle:
    """A bundle opened for reading: a ``LedgerSource``. Close it, or use it in ``with``.

    Attributes:
        ledger: The ledger's id, as the manifest says.
        count: The number of transactions, as the manifest says.
        version: Of the program that wrote it.
        pruned: How many models it says were pruned.
        archived: How many attachments it says were archived.
        is_archive: See ``LedgerSource``.

    Raises:
        BundleError: Not a bundle; the message says what is wrong.
        OSError: The file cannot be opened.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = path.open("rb")
        try:
            self._members = _index(self._file)
            self.ledger, self.count, self.version, self.is_archive = self._manifest()
            self._pruned, self._archived = self._read_digests(PRUNED), self._read_digests(ARCHIVED)
            self.pruned: int = len(self._pruned)
            self.archived: int = len(self._archived)
        except BaseException as error:
            self._file.close()
            if isinstance(error, BundleError):
                raise BundleError(f"{path}: {error}") from error
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._file.close()

    def transactions(self) -> Iterator[tuple[str, Transaction]]:
        """The transactions in the file's order.

        Raises:
            BundleError: A line is not a transaction, or there are fewer or more than the manifest says.
        """
        start, size = self._members[TRANSACTIONS]
        at, end, found = start, start + size, 0
        while at < end:
            self._file.seek(at)
            line = self._file.readline(min(MAX_LINE_BYTES, end - at))
            at += len(line)
            found += 1
            yield _parse_line(line, found)
        if found != self.count:
            raise BundleError(f"{TRANSACTIONS} has {found} transactions, the manifest says {self.count}")

    def attachment(self, digest: Digest) -> bytes | None:
        """An attachment's bytes.

        Raises:
            BundleError: It is larger than any attachment may be.
        """
        member = self._members.get(f"attachments/{digest}.json")
        if member is None:
            return None
        if member[1] > MAX_ATTACHMENT_BYTES:
            raise BundleError(f"attachment {digest[:16]}… has {member[1]} bytes; at most {MAX_ATTACHMENT_BYTES}")
        return self._read(*member)

    def figures(self, _: str) -> None:
        """See ``LedgerSource``: they follow from the models."""

    def model_size(self, digest: Digest) -> int | None:
        member = self._members.get(f"models/{digest}.safetensors")
        return None if member is None else member[1]

    def read_model(self, digest: Digest, start: int, stop: int) -> bytes:
        """Bytes ``start`` to ``stop`` of a model that is here."""
        offset, size = self._members[f"models/{digest}.safetensors"]
        stop = min(stop, size)
        return self._read(offset + start, max(stop - start, 0))

    def is_pruned(self, digest: Digest) -> bool:
        """Whether the bundle says that this model was pruned."""
        return bytes.fromhex(digest) in self._pruned

    def is_archived(self, digest: Digest) -> bool:
        """Whether the bundle says that this attachment was archived."""
        return bytes.fromhex(digest) in self._archived

    def acts(self) -> bytes:
        """The members' signed acts.

        Raises:
            BundleError: They are larger than they may be.
        """
        member = self._members.get(ACTS)
        if member is not None and member[1] > MAX_ACTS_BYTES:
            raise BundleError(f"{ACTS} has {member[1]} bytes; at most {MAX_ACTS_BYTES}")
        return b"" if member is None else self._read(*member)

    def checkpoints(self) -> list[bytes]:
        """The checkpoints by which the server joined.

        Raises:
            BundleError: They are larger than they may be, or cut off.
        """
        if CHECKPOINTS not in self._members:
            return []
        offset, size = self._members[CHECKPOINTS]
        if size > MAX_CHECKPOINTS_BYTES:
            raise BundleError(f"{CHECKPOINTS} has {size} bytes; at most {MAX_CHECKPOINTS_BYTES}")
        data = BytesIO(self._read(offset, size))
        found: list[bytes] = []
        while head := data.read(_LENGTH.size):
            length = int.from_bytes(head, "big")
            found.append(data.read(length))
            if len(head) != _LENGTH.size or len(found[-1]) != length:
                raise BundleError(f"{CHECKPOINTS} is no list of checkpoints")
        return found

    def _read_digests(self, name: str) -> frozenset[bytes]:
        if name not in self._members:
            return frozenset()
        offset, size = self._members[name]
        if size > _DIGEST_LINE * self.count:
            raise BundleError(f"{name} has more digests than the manifest has transactions")
        lines = self._read(offset, size).split(b"\n")
        if lines.pop() != b"" or not all(map(_DIGEST.fullmatch, lines)) or sorted(set(lines)) != lines:
            raise BundleError(f"{name} is no list of digests, ascending, one a line")
        return frozenset(bytes.fromhex(line.decode("ascii")) for line in lines)

    def _read(self, offset: int, size: int) -> bytes:
        self._file.seek(offset)
        data = self._file.read(size)
        if len(data) != size:
            raise BundleError(f"{self.path.name} is cut off")
        return data

    def _manifest(self) -> tuple[str, int, str, bool]:
        """Ledger, number of transactions, version of the program that wrote it, and whether it is an archive."""
        for name in (MANIFEST, TRANSACTIONS):
            if name not in self._members:
                raise BundleError(f"no {name} in the file: not a ledger bundle")
        offset, size = self._members[MANIFEST]
        if size > MAX_MANIFEST_BYTES:
            raise BundleError(f"{MANIFEST} has {size} bytes; at most {MAX_MANIFEST_BYTES}")
        try:
            manifest = json.loads(self._read(offset, size))
            form, ledger, count = manifest["format"], manifest["ledger"], manifest["transactions"]
            version, is_archive = str(manifest.get("version", "")), manifest.get("archive", False) is True
        except (ValueError, TypeError, KeyError, RecursionError, AttributeError) as error:
            raise BundleError(f"{MANIFEST} is not a bundle's manifest") from error
        if form != FORMAT:
            raise BundleError(f"bundle format {form!r}; this version reads {FORMAT!r}")
        if not isinstance(ledger, str) or not is_hex_id(ledger) or type(count) is not int or count < 0:
            raise BundleError(f"{MANIFEST} names no ledger or no number of transactions")
        return ledger, count, version, is_archive


def _parse_line(line: bytes, number: int) -> tuple[str, Transaction]:
    if not line.endswith(b"\n"):
        raise BundleError(f"{TRANSACTIONS}: line {number} is longer than {MAX_LINE_BYTES} bytes or not ended")
    try:
        content = json.loads(line)
        claimed, signature = content["id"], content["author_signature"]
        if not isinstance(claimed, str):
            raise TypeError
        return claimed, Transaction(
            header_bytes=bytes.fromhex(content["header"]),
            author_signature=None if signature is None else bytes.fromhex(signature),
            receipt=decode_receipt(bytes.fromhex(content["receipt"])),
        )
    except (ValueError, TypeError, KeyError, RecursionError, SignatureError) as error:
        raise BundleError(f"{TRANSACTIONS}: line {number} is not a transaction") from error


def _index(file: BinaryIO) -> dict[str, tuple[int, int]]:
    """Offset and size of each member, by name.

    Our own thirty lines instead of ``tarfile``: links, devices, sparse files and extended headers are not
    skipped but unknown, and nothing is read but the 512-byte blocks between members.
    """
    size = os.fstat(file.fileno()).st_size
    members: dict[str, tuple[int, int]] = {}
    at = 0
    while True:
        file.seek(at)
        block = file.read(_BLOCK)
        if len(block) < _BLOCK:
            raise BundleError("the file is cut off, or not a ledger bundle")
        if block == bytes(_BLOCK):
            return members
        name, length = _member_of(block)
        if name in members:
            raise BundleError(f"{name} stands twice in the file")
        members[name] = (at + _BLOCK, length)
        at += _BLOCK + -(-length // _BLOCK) * _BLOCK
        if at > size:
            raise BundleError(f"the file is cut off inside {name}")


def _member_of(block: bytes) -> tuple[str, int]:
    blank = block[:148] + b" " * 8 + block[156:]
    try:
        checksum = int(block[148:156].strip(b"\0 "), 8)
        length = int(block[124:136].strip(b"\0 "), 8)
    except ValueError as error:
        raise BundleError("not a ledger bundle: a member's header does not parse") from error
    if checksum != sum(blank) or length < 0:
        raise BundleError("a member's header is damaged (checksum)")
    name = block[:100].rstrip(b"\0").decode("latin-1")
    if block[156:157] != b"0" or any(block[345:500]) or _NAME.fullmatch(name) is None:
        raise BundleError(f"{ascii(name)[:80]} has no place in a ledger bundle")
    return name, length
