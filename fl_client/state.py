"""A participant's folder: who it is and where it stands, such that a kill at any moment loses nothing.

    key.pem           the author's Ed25519 key (mode 0600)
    participant.json  ledger, newest transaction, and the publication that is under way, if any
    models/           the newest model and the one under way, by digest
    lock              held while a process uses the folder

``participant.json`` is the one point of truth and changes by an atomic rename. A publication is written down
with its exact header and model before it is sent: a client killed between sending and the answer
sends the same bytes again, which have the same id, and is answered with the transaction that is there.
"""

import contextlib
import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from pydantic import ValidationError

from fl_client.durable_files import lock_file, replace_file
from fl_client.errors import StateCorruptError, StateError
from fl_core.dag.author import AuthorKind
from fl_core.dag.signature import public_key_of
from fl_core.dag.transaction import Header, decode_header, transaction_id
from fl_core.errors import TransactionError, WrongLedgerError
from fl_core.models import Buffer
from fl_core.types import AuthorId, Digest, TxId, digest_of, is_hex_id
from fl_core.wire.v1 import CarriedEvidence

FORMAT: Final = "dag-acfl/participant/v1"
KEY_FILE: Final = "key.pem"
STATE_FILE: Final = "participant.json"
LOCK_FILE: Final = "lock"
MODELS: Final = "models"
MAX_STATE_BYTES: Final = 1 << 20
_RESTORE: Final = "restore it from a copy, or move the folder away to join as a new participant"


@dataclass(frozen=True, slots=True)
class Position:
    """Where a participant stands in its ledger; the fields of ``participant.json``.

    ``transaction`` and ``model`` are its newest transaction and that one's model digest, None before the first;
    ``sequence`` is the number that the next transaction gets; ``pending`` is the header of a publication whose
    outcome is not known yet, in hexadecimal; ``evidence`` is that of its selection, for a server that did not make it.
    """

    ledger: TxId
    author: AuthorId
    transaction: TxId | None = None
    model: Digest | None = None
    sequence: int = 0
    transactions: int = 0
    pending: str | None = None
    evidence: dict[str, str] | None = None


class ParticipantState:
    """A participant's folder, opened and locked; use it as a context manager.

    Args:
        folder: Made where it is missing, for this user only.

    Raises:
        StateLockedError: Another process uses it.
        StateCorruptError: A file in it is not what was written.
        StateError: It cannot be made or written.
    """

    def __init__(self, folder: Path | str) -> None:
        self.folder = folder = Path(folder)
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            (folder / MODELS).mkdir(mode=0o700, exist_ok=True)
        except OSError as error:
            raise StateError(f"folder {folder} cannot be made: {error.strerror}", path=folder) from error
        self._lock = lock_file(folder / LOCK_FILE)
        try:
            self.key = self._load_or_create_key()
            self.author = AuthorKind.ED25519.author(public_key_of(self.key))
            self.position = self._load()
            self._sweep()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let the folder go."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def enter(self, ledger: TxId) -> Position:
        """The position in ``ledger``; at the first call the start of one.

        Raises:
            WrongLedgerError: The folder belongs to another ledger.
        """
        if self.position is None:
            self._save(Position(ledger, self.author))
        assert self.position is not None, "just saved"
        if self.position.ledger != ledger:
            raise WrongLedgerError(
                f"{self.folder} belongs to ledger {self.position.ledger[:16]}…, the server has {ledger[:16]}…; "
                "use another --state folder for another ledger"
            )
        return self.position

    def pending(self) -> tuple[Header, bytes] | None:
        """The publication under way: its header and its model."""
        position = self._entered()
        if position.pending is None:
            return None
        header = decode_header(bytes.fromhex(position.pending))
        model = self._read_model(header.model_digest)
        if model is None:
            path = self.folder / MODELS / _model_name(header.model_digest)
            raise StateCorruptError(f"{path} is missing or damaged; {_RESTORE}", path=path)
        return header, model

    def evidence(self) -> dict[str, str] | None:
        """The evidence that goes with the publication under way."""
        return self._entered().evidence

    def begin(self, header: Header, model: Buffer, *, evidence: dict[str, str] | None = None) -> None:
        """Write down what is about to be sent; on return it survives a power cut."""
        position = self._entered()
        path = self.folder / MODELS / _model_name(header.model_digest)
        if self._read_model(header.model_digest) is None:
            replace_file(path, model)
        self._save(replace(position, pending=header.encode().hex(), evidence=evidence))

    def finish(self, header: Header) -> None:
        """The publication is acknowledged: it is the newest transaction now."""
        self._save(
            replace(
                self._entered(),
                transaction=transaction_id(header.encode()),
                model=header.model_digest,
                sequence=header.sequence + 1,
                transactions=self._entered().transactions + 1,
                pending=None,
                evidence=None,
            )
        )
        self._sweep()

    def abandon(self) -> None:
        """The publication was refused for good: forget it."""
        self._save(replace(self._entered(), pending=None, evidence=None))
        self._sweep()

    def newest_model(self) -> bytes | None:
        """The newest transaction's model; None before the first, or where the file is lost or damaged."""
        digest = self._entered().model
        return None if digest is None else self._read_model(digest)

    def _entered(self) -> Position:
        assert self.position is not None, "enter() comes first"
        return self.position

    def _read_model(self, digest: Digest) -> bytes | None:
        with contextlib.suppress(OSError):
            data = (self.folder / MODELS / _model_name(digest)).read_bytes()
            if digest_of(data) == digest:
                return data
        return None

    def _save(self, position: Position) -> None:
        text = json.dumps({"format": FORMAT, **asdict(position)}, indent=1).encode()
        replace_file(self.folder / STATE_FILE, text)
        self.position = position

    def _load(self) -> Position | None:
        path = self.folder / STATE_FILE
        try:
            with path.open("rb") as file:
                data = file.read(MAX_STATE_BYTES + 1)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise StateError(f"{path} cannot be read: {error.strerror}", path=path) from error
        try:
            position = _position(json.loads(data))
        except (ValueError, TypeError, KeyError, RecursionError, TransactionError) as error:
            raise StateCorruptError(f"{path} is damaged ({error}); {_RESTORE}", path=path) from error
        if position.author != self.author:
            raise StateCorruptError(f"{path} and {KEY_FILE} belong to different authors; {_RESTORE}", path=path)
        return position

    def _load_or_create_key(self) -> Ed25519PrivateKey:
        path = self.folder / KEY_FILE
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            if (self.folder / STATE_FILE).exists():
                raise StateCorruptError(f"{path} is missing beside {STATE_FILE}; {_RESTORE}", path=path) from None
            return self._create_key(path)
        except OSError as error:
            raise StateError(f"{path} cannot be read: {error.strerror}", path=path) from error
        try:
            key = serialization.load_pem_private_key(data, password=None)
        except (ValueError, TypeError, UnsupportedAlgorithm) as error:
            raise StateCorruptError(f"{path} is no private key in PEM form; {_RESTORE}", path=path) from error
        if not isinstance(key, Ed25519PrivateKey):
            raise StateCorruptError(f"{path} is a key, but not an Ed25519 key; {_RESTORE}", path=path)
        return key

    def _create_key(self, path: Path) -> Ed25519PrivateKey:
        key = Ed25519PrivateKey.generate()
        pem = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        replace_file(path, pem)
        return key

    def _sweep(self) -> None:
        """Remove models that nothing refers to, and halves of files that a kill left."""
        keep = set()
        if self.position is not None:
            if self.position.model is not None:
                keep.add(_model_name(self.position.model))
            if self.position.pending is not None:
                pending = decode_header(bytes.fromhex(self.position.pending))
                keep.add(_model_name(pending.model_digest))
        with contextlib.suppress(OSError):
            for path in (self.folder / MODELS).iterdir():
                if path.name not in keep:
                    path.unlink()


def _position(content: Mapping[str, Any]) -> Position:
    if content["format"] != FORMAT:
        raise ValueError(f"format {str(content['format'])[:40]!r}, this version reads {FORMAT!r}")
    position = Position(**{name: value for name, value in content.items() if name != "format"})
    for name in ("ledger", "transaction", "model"):
        value = getattr(position, name)
        if not (isinstance(value, str) and is_hex_id(value)) and (value is not None or name == "ledger"):
            raise ValueError(f"{name} is not 64 hexadecimal digits")
    for name in ("sequence", "transactions"):
        if type(getattr(position, name)) is not int or getattr(position, name) < 0:
            raise ValueError(f"{name} is not a count")
    if position.pending is not None:
        header = decode_header(bytes.fromhex(position.pending))
        if header.author != position.author or header.ledger != position.ledger:
            raise ValueError("pending is another participant's")
    if position.evidence is not None:
        try:
            CarriedEvidence.model_validate(position.evidence)
        except ValidationError as error:
            raise ValueError("evidence is not a selection's evidence") from error
    return position


def _model_name(digest: Digest) -> str:
    return f"{digest}.safetensors"
