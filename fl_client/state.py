"""A participant's folder: who it is and where it stands, such that a kill at any moment loses nothing.

    key.pem           the author's Ed25519 key (mode 0600)
    key.old.pem       the key before that, where an act let the new one go on as it did
    participant.json  ledger, newest transaction, and the publication that is under way, if any
    models/           the newest model, what it was trained from, the best so far and the one under way, by digest
    lock              held while a process uses the folder

Where a client keeps a part of its model to itself, a model is two files: what travels, and the rest. Which two belong
together stands in ``participant.json``, and so changes together with what is published.

``participant.json`` is the one point of truth and changes by an atomic rename. A publication is written down
with its exact header and model before it is sent: a client killed between sending and the answer
sends the same bytes again, which have the same id, and is answered with the transaction that is there.

A folder belongs to a ledger from its first publication on: whoever asked a wrong server, or was refused, lost nothing.
"""

import contextlib
import math
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Annotated, Any, ClassVar, Final, Literal, Self, TypeAlias

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from fl_client.durable_files import holder_of, lock_file, replace_file
from fl_client.errors import StateCorruptError, StateError
from fl_client.metrics import figure_of
from fl_core.dag.author import AuthorKind
from fl_core.dag.signature import public_key_of
from fl_core.dag.transaction import MAX_METRICS, Header, decode_header, transaction_id
from fl_core.errors import TransactionError, WrongLedgerError
from fl_core.models import Buffer, ModelLayout, decode_any_order, encode_model, read_layout
from fl_core.types import AuthorId, Digest, TxId, digest_of
from fl_core.wire.v1 import CarriedEvidence

KEY_FILE: Final = "key.pem"
FORMER_KEY_FILE: Final = "key.old.pem"
STATE_FILE: Final = "participant.json"
LOCK_FILE: Final = "lock"
MODELS: Final = "models"
MAX_STATE_BYTES: Final = 1 << 20
_HEX: Final = Field(pattern=r"^[0-9a-f]{64}$")
_RESTORE: Final = "restore it from a copy, or move the folder away to join as a new participant"
_LOOKS: Final = 3
"""How often a folder is looked at anew whose participant went on meanwhile, and swept a model away."""

Which: TypeAlias = Literal["given", "trained", "best"]
"""A model of the folder: ``given``, what the newest training began from; ``trained``, what the newest transaction
published; ``best``, of all that were given or trained, the best on the own test data."""


@dataclass(frozen=True, slots=True, eq=False)
class Measured:
    """A model as training has it: what travels, encoded; the arrays that stay here; what was measured of both; and the
    noise that the client's trainings have added to each value since it last began from an average.
    """

    model: Buffer
    rest: Mapping[str, NDArray[Any]]
    metrics: Mapping[str, float]
    noise_std: float = 0.0


@dataclass(frozen=True, slots=True, eq=False)
class KeptModel:
    """A whole model out of the folder.

    Attributes:
        data: All its tensors, those that travel and those that stay, as a safetensors file.
        metrics: What was measured of it on the own test data; empty where that is not known.
    """

    data: bytes
    metrics: Mapping[str, float]

    @property
    def arrays(self) -> dict[str, NDArray[Any]]:
        """Its tensors by name, float32: what a trainer trains and evaluates."""
        return decode_any_order(self.data)


class Kept(BaseModel):
    """Which files a model is, and what was measured of it.

    Attributes:
        model: Digest of what travels.
        rest: Of what stays here; None where everything travels.
        metrics: On the own test data.
        noise_std: As ``Measured`` has it.
    """

    model_config: ClassVar[ConfigDict] = ConfigDict(frozen=True, strict=True, extra="forbid")

    model: Annotated[Digest, _HEX]
    rest: Annotated[Digest, _HEX] | None = None
    metrics: dict[str, float] = Field(default_factory=dict)
    noise_std: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.0

    @property
    def figure(self) -> tuple[float, float] | None:
        """As ``figure_of`` has it."""
        return figure_of(self.metrics)


class Position(BaseModel):
    """Where a participant stands in its ledger: the content of ``participant.json``.

    Attributes:
        transaction: Its newest transaction, and ``trained`` that one's model; None before the first.
        sequence: The number that the next transaction gets.
        given: What the newest training began from.
        best: The best of all models that were given or trained.
        pending: Header, in hexadecimal, of a publication whose outcome is not known yet.
        coming: Its model.
        evidence: That of its selection, for a server that did not make it.
    """

    model_config: ClassVar[ConfigDict] = ConfigDict(frozen=True, strict=True, extra="forbid")

    format: Literal["dag-acfl/participant/v1"]
    ledger: Annotated[TxId, _HEX]
    author: AuthorId
    transaction: Annotated[TxId, _HEX] | None = None
    sequence: int = Field(default=0, ge=0)
    trained: Kept | None = None
    given: Kept | None = None
    best: Kept | None = None
    pending: str | None = None
    coming: Kept | None = None
    evidence: CarriedEvidence | None = None

    @model_validator(mode="after")
    def _pending_is_own(self) -> Self:
        header = self.pending_header()
        if header is not None and (header.author != self.author or header.ledger != self.ledger):
            raise ValueError("pending is another participant's")
        return self

    def pending_header(self) -> Header | None:
        """The header of the publication under way."""
        return None if self.pending is None else decode_header(bytes.fromhex(self.pending))

    @property
    def is_bound(self) -> bool:
        """Whether something was published in the ledger, or may have been."""
        return self.transaction is not None or self.pending is not None


@dataclass(frozen=True, slots=True)
class StateView:
    """What a folder says of a participant, running or not.

    Attributes:
        position: None before the first publication.
        process: Who uses the folder now, such as ``process 7``; None if nobody does.
    """

    author: AuthorId
    position: Position | None
    process: str | None


def read_state(folder: Path) -> StateView:
    """Look into a participant's folder, also while a process uses it; nothing is changed.

    Raises:
        StateError: It is no participant's folder, or cannot be read.
        StateCorruptError: A file in it is not what was written.
    """
    key = _read_key(folder)
    if key is None:
        raise StateError(
            f"{folder} is no state folder; a client's first run makes one, where its --state says", path=folder
        )
    author = _author_of(key)
    position = _read_position(folder, author)
    bound = position is not None and position.is_bound
    return StateView(author, position if bound else None, holder_of(folder / LOCK_FILE))


def model_file(folder: Path, kept: Kept) -> Path:
    """The file with what travels of a model."""
    return folder / MODELS / _model_name(kept.model)


def read_whole_model(folder: Path, which: Which) -> KeptModel | None:
    """A model of a participant's folder, also while a process uses it; None where there is no such model.

    Raises:
        StateError, StateCorruptError: As ``read_state``; or a file of the model is missing or damaged.
    """
    for _ in range(_LOOKS):
        position = read_state(folder).position
        kept: Kept | None = None if position is None else getattr(position, which)
        if kept is None:
            return None
        parts = [_read_model(folder, digest) for digest in (kept.model, kept.rest) if digest is not None]
        found = [part for part in parts if part is not None]
        if len(found) == len(parts):
            return KeptModel(_joined(found), kept.metrics)
    assert kept is not None, "it would have been returned"
    path = model_file(folder, kept)
    raise StateCorruptError(f"{path}, or what belongs to it, is missing or damaged; {_RESTORE}", path=path)


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
        folder = Path(folder)
        self.folder: Path = folder
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            (folder / MODELS).mkdir(mode=0o700, exist_ok=True)
        except OSError as error:
            raise StateError(f"folder {folder} cannot be made: {error.strerror}", path=folder) from error
        self._lock = lock_file(folder / LOCK_FILE)
        try:
            self.key: Ed25519PrivateKey = _read_key(folder) or _create_key(folder)
            self.author: AuthorId = _author_of(self.key)
            self.position = _read_position(folder, self.author)
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
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def enter(self, ledger: TxId) -> Position:
        """The position in ``ledger``; the start of one, which is not written down, where nothing was published yet.

        Raises:
            WrongLedgerError: The folder belongs to another ledger.
        """
        if self.position is None or not (self.position.is_bound or self.position.ledger == ledger):
            self.position = Position(format="dag-acfl/participant/v1", ledger=ledger, author=self.author)
        if self.position.ledger != ledger:
            raise WrongLedgerError(
                f"{self.folder} belongs to ledger {self.position.ledger[:16]}…, the server has {ledger[:16]}…; "
                "use another --state folder for another ledger"
            )
        return self.position

    def check_room(self, step_bytes: int) -> None:
        """See that what a step keeps, two models, has room on the disk: before it is trained, not after.

        Raises:
            StateError: It has none.
        """
        free = shutil.disk_usage(self.folder).free
        if free < step_bytes + MAX_STATE_BYTES:
            raise StateError(
                f"{self.folder}: the disk has {free:,} bytes free, a step takes {step_bytes:,}; free some space",
                path=self.folder,
            )

    def pending(self) -> tuple[Header, bytes] | None:
        """The publication under way: its header and its model."""
        header = self._entered().pending_header()
        if header is None:
            return None
        return header, self._must_read(header.model_digest)

    def evidence(self) -> CarriedEvidence | None:
        """The evidence that goes with the publication under way."""
        return self._entered().evidence

    def keep(self, *, given: Measured, trained: Measured) -> None:
        """Keep what a training began from and what came of it, and the better one if it is the best so far.

        Written down for good together with the publication that ``begin`` is told of next.
        """
        position = self._entered()
        start, coming = self._stored(given), self._stored(trained)
        best = position.best
        for each in (coming, start):  # among equals the newest, and of its two the average
            if each.figure is not None and (best is None or best.figure is None or each.figure >= best.figure):
                best = each
        self.position = position.model_copy(update={"given": start, "coming": coming, "best": best})

    def _stored(self, measured: Measured) -> Kept:
        rest = None
        if measured.rest:
            rest = self._write(encode_model(ModelLayout.of_arrays(measured.rest), measured.rest))
        finite = {name: float(value) for name, value in measured.metrics.items() if math.isfinite(value)}
        # The cut never takes what the best is told by.
        kept = sorted(finite, key=lambda name: name not in ("accuracy", "loss"))[:MAX_METRICS]
        metrics = {name: value for name, value in finite.items() if name in kept}
        return Kept(model=self._write(measured.model), rest=rest, metrics=metrics, noise_std=measured.noise_std)

    def _write(self, data: Buffer) -> Digest:
        digest = digest_of(data)
        if _read_model(self.folder, digest) is None:
            replace_file(self.folder / MODELS / _model_name(digest), data)
        return digest

    def begin(self, header: Header, model: Buffer, *, evidence: CarriedEvidence | None = None) -> None:
        """Write down what is about to be sent; on return it survives a power cut."""
        self._write(model)
        coming = self._entered().coming
        if coming is None or coming.model != header.model_digest:
            coming = Kept(model=header.model_digest)
        self._change(pending=header.encode().hex(), coming=coming, evidence=evidence)

    def finish(self, header: Header) -> None:
        """The publication is acknowledged: it is the newest transaction now."""
        identity = transaction_id(header.encode())
        newest = {"transaction": identity, "trained": self._entered().coming, "sequence": header.sequence + 1}
        self._change(**newest, pending=None, coming=None, evidence=None)
        self._sweep()

    def abandon(self) -> None:
        """The publication was refused for good: forget it."""
        self._change(pending=None, coming=None, evidence=None)
        self._sweep()

    def newest_model(self, digest: Digest | None = None) -> bytes | None:
        """The newest transaction's model; None before the first, and where the file is lost or damaged.

        Args:
            digest: None, too, if it is not this one.
        """
        newest = self._entered().trained
        return None if newest is None or digest not in (None, newest.model) else _read_model(self.folder, newest.model)

    def newest_rest(self) -> dict[str, NDArray[Any]]:
        """What stays here of the newest transaction's model; empty before the first, and where everything travels.

        Raises:
            StateCorruptError: Its file is missing or damaged: no server has it.
        """
        newest = self._entered().trained
        return {} if newest is None or newest.rest is None else decode_any_order(self._must_read(newest.rest))

    def _entered(self) -> Position:
        assert self.position is not None, "enter() comes first"
        return self.position

    def _must_read(self, digest: Digest) -> bytes:
        data = _read_model(self.folder, digest)
        if data is None:
            path = self.folder / MODELS / _model_name(digest)
            raise StateCorruptError(f"{path} is missing or damaged; {_RESTORE}", path=path)
        return data

    def _change(self, **fields: object) -> None:
        self._save(self._entered().model_copy(update=fields))

    def _save(self, position: Position) -> None:
        replace_file(self.folder / STATE_FILE, position.model_dump_json(indent=1).encode())
        self.position = position

    def _sweep(self) -> None:
        """Remove models that nothing refers to, and halves of files that a kill left."""
        keep: set[str] = set()
        if (position := self.position) is not None:
            for kept in (position.trained, position.given, position.best, position.coming):
                if kept is not None:
                    keep.update(_model_name(digest) for digest in (kept.model, kept.rest) if digest is not None)
        with contextlib.suppress(OSError):
            for path in (self.folder / MODELS).iterdir():
                if path.name not in keep:
                    path.unlink()


def _model_name(digest: Digest) -> str:
    return f"{digest}.safetensors"


def _read_model(folder: Path, digest: Digest) -> bytes | None:
    with contextlib.suppress(OSError):
        data = (folder / MODELS / _model_name(digest)).read_bytes()
        if digest_of(data) == digest:
            return data
    return None


def _joined(parts: Sequence[bytes]) -> bytes:
    """One safetensors file of the tensors of several."""
    if len(parts) == 1:
        return parts[0]
    layout = ModelLayout.of(tensor for part in parts for tensor in read_layout(part).tensors)
    return encode_model(layout, {name: array for part in parts for name, array in decode_any_order(part).items()})


def _author_of(key: Ed25519PrivateKey) -> AuthorId:
    return AuthorKind.ED25519.author(public_key_of(key))


def _read_position(folder: Path, author: AuthorId) -> Position | None:
    path = folder / STATE_FILE
    try:
        with path.open("rb") as file:
            data = file.read(MAX_STATE_BYTES + 1)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StateError(f"{path} cannot be read: {error.strerror}", path=path) from error
    try:
        position = Position.model_validate_json(data)
    except (ValidationError, TransactionError) as error:
        fault = str(error)
        if isinstance(error, ValidationError):
            first = error.errors(include_url=False)[0]
            fault = ": ".join([*map(str, first["loc"]), first["msg"]])
        raise StateCorruptError(f"{path} is damaged ({fault[:200]}); {_RESTORE}", path=path) from error
    if position.author != author:
        former = _read_key_file(folder / FORMER_KEY_FILE)
        if former is None or _author_of(former) != position.author:
            raise StateCorruptError(f"{path} and {KEY_FILE} belong to different authors; {_RESTORE}", path=path)
        # The new key goes on as the former one did. What that one had signed and not yet published, nobody takes now.
        changed = {"author": author, "pending": None, "coming": None, "evidence": None}
        position = position.model_copy(update=changed)
    return position


def _read_key(folder: Path) -> Ed25519PrivateKey | None:
    path = folder / KEY_FILE
    key = _read_key_file(path)
    if key is None and (folder / STATE_FILE).exists():
        raise StateCorruptError(f"{path} is missing beside {STATE_FILE}; {_RESTORE}", path=path)
    return key


def _read_key_file(path: Path) -> Ed25519PrivateKey | None:
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StateError(f"{path} cannot be read: {error.strerror}", path=path) from error
    try:
        key = serialization.load_pem_private_key(data, password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise StateCorruptError(f"{path} is no private key in PEM form; {_RESTORE}", path=path) from error
    if not isinstance(key, Ed25519PrivateKey):
        raise StateCorruptError(f"{path} is a key, but not an Ed25519 key; {_RESTORE}", path=path)
    return key


def _create_key(folder: Path) -> Ed25519PrivateKey:
    key = Ed25519PrivateKey.generate()
    pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    replace_file(folder / KEY_FILE, pem)
    return key
