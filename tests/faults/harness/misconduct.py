"""What bad peers do: mutated transactions, answers that are no answers, promises that are not kept, endless ancestors."""

import gzip
import json
import random
import struct
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Final, Self

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from fl_core.dag.receipt import decode_receipt
from fl_core.dag.transaction import Header, Kind, Transaction, transaction_id
from fl_core.models import ModelLayout, encode_flat
from fl_core.sync.messages import MAX_CHANGES, TransactionBundle
from fl_core.sync.summary import StateSummary, sign_summary
from fl_core.types import ZERO_ID, Digest, TxId, digest_of
from ledger_server.gossip.framing import LENGTH, encode_transactions
from tests.builders import CREATED_AT_MS, START, author_of, key_from_seed, seal
from tests.faults.gossip.bad_peers import flipped
from tests.faults.harness.bad_peer_server import NOT_FOUND, BadPeer, Line, Reply, json_reply
from tests.faults.harness.writers import ledger_of, model_of

AUTHOR_KEY = key_from_seed(70_000)
DRIP_S = 0.4
BOMB_BYTES = 64 << 20


@dataclass(slots=True)
class Forge:
    """Makes transactions of a ledger: right in themselves unless told otherwise.

    Args:
        layout: Of its models; everything approves genesis alone unless told otherwise.
        issuer: Signs as the server that admitted.
        rng: Every draw.
    """

    layout: ModelLayout
    issuer: Ed25519PrivateKey
    rng: random.Random
    ledger: TxId = field(init=False)

    def __post_init__(self) -> None:
        self.ledger = ledger_of(self.layout)

    def header(self, data: bytes, **changes: object) -> Header:
        """A header over these model bytes."""
        return Header(
            **{
                "ledger": self.ledger,
                "kind": Kind.UPDATE,
                "author": author_of(AUTHOR_KEY),
                "sequence": self.rng.randrange(1 << 40),
                "created_at_ms": CREATED_AT_MS,
                "num_examples": 1,
                "start": START,
                "model_digest": digest_of(data),
                "model_size": self.layout.nbytes,
                "attachment_digest": Digest(ZERO_ID),
                "parents": (self.ledger,),
                **changes,
            }  # type: ignore[arg-type]
        )

    def model(self) -> bytes:
        """A sound model that nobody has."""
        return model_of(self.layout, 70_000, self.rng.randrange(1 << 40))

    def sealed(self, data: bytes | None = None, **changes: object) -> Transaction:
        """A transaction over these model bytes, or a new model, signed by the author and by the issuer."""
        header = self.header(self.model() if data is None else data, **changes)
        return seal(header, author_key=AUTHOR_KEY, issuer=self.issuer)

    def random_id(self) -> TxId:
        """An id that nothing hashes to."""
        return TxId(self.rng.randbytes(32).hex())


# -- mutants ----------------------------------------------------------------------------------------


@dataclass(slots=True)
class Mutant:
    """Something that must not be taken in.

    Attributes:
        id: Under which it is asked for.
        bundle: What is sent; None where ``answer`` is.
        answer: A whole answer, wrong as such.
        model: Bytes that are sent for its model; None where it is not to come so far.
        kind: Which of ``MUTATIONS`` made it.
        is_blamed: Whether it counts against who sent it; a norm beyond what the parents' allow is refused and counts against
            nobody, for a server that joined by a checkpoint does not know those norms.
        is_delivered: Whether what is wrong has been sent.
    """

    id: TxId
    bundle: TransactionBundle | None = None
    answer: bytes | None = None
    model: bytes | None = None
    kind: str = ""
    is_blamed: bool = True
    is_delivered: bool = False

    @classmethod
    def of(cls, transaction: Transaction, attachment: bytes | None = None, *, model: bytes | None = None) -> Self:
        """A transaction that is wrong, or comes with a wrong attachment or model."""
        return cls(transaction.id, TransactionBundle(transaction, attachment), model=model)


def header_bit(forge: Forge) -> Mutant:
    """A bit of the header changed: its signatures are another's, if it can be read at all."""
    sound = forge.sealed()
    mutant = replace(sound, header_bytes=flipped(sound.header_bytes, forge.rng))
    try:
        mutant.header  # noqa: B018 -- parsed here, to see whether it can be
    except Exception:  # noqa: BLE001 -- whatever it is, the server must find it too
        return Mutant(mutant.id, answer=encode_transactions([TransactionBundle(mutant)], []))
    return Mutant.of(mutant)


def author_bit(forge: Forge) -> Mutant:
    """A bit of the author's signature changed, or none at all."""
    sound = forge.sealed()
    assert sound.author_signature is not None
    signature = forge.rng.choice([flipped(sound.author_signature, forge.rng), None])
    return Mutant.of(replace(sound, author_signature=signature))


def issuer_bit(forge: Forge) -> Mutant:
    """A bit of the receipt changed: the server's key, the time, the version, or the signature."""
    sound = forge.sealed()
    # The two highest bits of the time and of the version are refused before the signature is.
    bits = flipped(sound.receipt.encode(), forge.rng)
    while bits[32] & 128 or bits[40] & 128:
        bits = flipped(sound.receipt.encode(), forge.rng)
    return Mutant.of(replace(sound, receipt=decode_receipt(bits)))


def model_bit(forge: Forge) -> Mutant:
    """The model that comes is another than the one that is named: a bit, a byte too many, or all of it.

    One that is cut may be the network's fault, so that it is among the ``WAYS`` and not held against anybody here.
    """
    data = forge.model()
    wrong = forge.rng.choice([flipped(data, forge.rng), data + b"\0", forge.model()])
    return Mutant.of(forge.sealed(data), model=wrong)


def model_value(forge: Forge) -> Mutant:
    """The model is the one that is named, and no model of this ledger: NaN, infinity, huge, no safetensors."""
    layout = forge.layout
    vector = np.random.default_rng(forge.rng.randrange(1 << 40)).random(layout.num_parameters, np.float32)
    way = forge.rng.randrange(6)
    match way:
        case 0:
            data = encode_flat(layout, vector * np.float32(1e6))
        case 1:
            data = forge.rng.randbytes(layout.nbytes)
        case 2:
            data = forge.model()[:8] + forge.rng.randbytes(layout.nbytes - 8)
        case 3:
            data = forge.model().replace(b"fc.bias", b"fc.bia5")
        case _:
            vector[forge.rng.randrange(len(vector))] = forge.rng.choice([np.nan, np.inf, -np.inf, 3e38])
            data = encode_flat(layout, vector)
    mutant = Mutant.of(forge.sealed(data), model=data)
    mutant.is_blamed = way != 0
    return mutant


def attachment(forge: Forge) -> Mutant:
    """The attachment is missing, changed, or not named."""
    text = json.dumps({"evidence": forge.rng.random()}).encode()
    named, unnamed = forge.sealed(attachment_digest=digest_of(text)), forge.sealed()
    return Mutant.of(*forge.rng.choice([(named, None), (named, flipped(text, forge.rng)), (unnamed, text)]))


def rule(forge: Forge) -> Mutant:
    """Signed as it should be, and against a rule for headers."""
    changes: dict[str, object] = forge.rng.choice(
        [
            {"ledger": forge.random_id()},
            {"kind": Kind.GENESIS, "ledger": TxId(ZERO_ID), "parents": (), "start": Digest(ZERO_ID)},
            {"num_examples": 0},
            {"model_size": forge.layout.nbytes + forge.rng.choice([-1, 1, 1 << 40])},
            {"parents": tuple(sorted(forge.random_id() for _ in range(65)))},
        ]
    )
    return Mutant.of(forge.sealed(**changes))


def frame(forge: Forge) -> Mutant:
    """An answer that is none: cut, with bytes behind its end, with counts, lengths or flags beyond their bounds."""
    transaction = forge.sealed()
    sound = encode_transactions([TransactionBundle(transaction)], [])
    size = len(transaction.header_bytes)
    huge = struct.pack(">I", forge.rng.randrange(49 << 10, 1 << 32))
    wrong = forge.rng.choice(
        [
            sound[: forge.rng.randrange(len(sound))],
            sound + forge.rng.randbytes(forge.rng.randrange(1, 100)),
            struct.pack(">H", forge.rng.randrange(2, 1 << 16)) + sound[2:],
            sound[:2] + huge + sound[6:],
            sound[: 6 + size] + bytes([forge.rng.randrange(4, 256)]) + sound[7 + size :],
            forge.rng.randbytes(forge.rng.randrange(1000)),
            b"\0" * forge.rng.randrange(5, 9 << 20),
        ]
    )
    return Mutant(transaction.id, answer=wrong)


def unasked(forge: Forge) -> Mutant:
    """Another transaction than the one that was asked for; it is sound."""
    return Mutant(forge.random_id(), answer=encode_transactions([TransactionBundle(forge.sealed())], []))


MUTATIONS: Final[dict[str, Callable[[Forge], Mutant]]] = {
    "header-bit": header_bit,
    "author-signature": author_bit,
    "issuer-signature": issuer_bit,
    "model-bytes": model_bit,
    "model-values": model_value,
    "attachment": attachment,
    "header-rule": rule,
    "frame": frame,
    "unasked": unasked,
}


class Forger(BadPeer):
    """A peer that has transactions of its own making to send.

    Args:
        name: As the list calls it.
        forge: Makes them; its issuer is the peer.
    """

    def __init__(self, name: str, forge: Forge) -> None:
        super().__init__(name, forge.issuer)
        self.forge = forge


class Mutator(Forger):
    """Deals out mutants, one after another where one spoils a whole answer, and all that it may otherwise."""

    def __init__(self, name: str, forge: Forge) -> None:
        super().__init__(name, forge)
        self.hand: list[Mutant] = []
        self._queue: deque[Mutant] = deque()
        self._open: dict[str, Mutant] = {}
        self._models: dict[str, Mutant] = {}

    def deal(self, kinds: Sequence[str]) -> None:
        """From now on, a mutant of each of these kinds, in any order."""
        with self._lock:
            self.hand = [MUTATIONS[kind](self.forge) for kind in kinds]
            for mutant, kind in zip(self.hand, kinds, strict=True):
                mutant.kind = kind
            self.forge.rng.shuffle(self.hand)
            self._queue, self._open, self._models = deque(self.hand), {}, {}

    @property
    def is_done(self) -> bool:
        """Whether everything that was dealt has been sent."""
        with self._lock:
            return not self._queue and all(mutant.is_delivered for mutant in self._open.values())

    def claims(self) -> list[TxId]:
        """Ids to be announced now: none while those announced before have not all been sent."""
        with self._lock:
            if any(not mutant.is_delivered for mutant in self._open.values()):
                return []
            self._open = {}
            while self._queue and (not self._open or self._queue[0].answer is None):
                mutant = self._queue.popleft()
                self._open[mutant.id] = mutant
                if mutant.model is not None and mutant.bundle is not None:
                    self._models[mutant.bundle.transaction.header.model_digest] = mutant
                if mutant.answer is not None:
                    break
            return [TxId(each) for each in self._open]

    def transactions(self, ids: Sequence[str]) -> Reply:
        """What is asked for, if it was announced and has not been sent yet."""
        with self._lock:
            asked = [self._open[each] for each in ids if each in self._open]
            new = [mutant for mutant in asked if not mutant.is_delivered]
            for mutant in new:
                if mutant.answer is not None:
                    mutant.is_delivered = True
                    return Reply(body=mutant.answer)
            found = tuple(mutant.bundle for mutant in new if mutant.bundle is not None)
            for mutant in new:
                mutant.is_delivered |= mutant.model is None
            known = {mutant.id for mutant in new}
            unknown = tuple(TxId(each) for each in ids if each not in known)
            return Reply(body=encode_transactions(found, unknown))

    def models(self, digests: Sequence[str]) -> Reply:
        """The wrong bytes for each, all in one answer."""
        with self._lock:
            parts = []
            for digest in digests:
                mutant = self._models.get(digest)
                data = b"" if mutant is None else mutant.model or b""
                parts += [LENGTH.pack(len(data)), data]
                if mutant is not None:
                    mutant.is_delivered = True
            return Reply(body=b"".join(parts))

    def model(self, digest: str) -> Reply:
        """The wrong bytes."""
        with self._lock:
            mutant = self._models.get(digest)
            if mutant is None or mutant.model is None:
                return NOT_FOUND
            mutant.is_delivered = True
            return Reply(body=mutant.model)


# -- answers that are none --------------------------------------------------------------------------


@cache
def _bomb() -> bytes:
    return gzip.compress(bytes(BOMB_BYTES), compresslevel=9)


def _endless(piece: bytes, *, pause_s: float = 0.0) -> Iterator[bytes]:
    while True:
        yield piece
        if pause_s:
            time.sleep(pause_s)


def _endless_head() -> Iterator[bytes]:
    yield b"HTTP/1.1 200 OK\r\n"
    yield from _endless(b"x-more: " + b"y" * 1000 + b"\r\n")


WAYS: Final[dict[str, Callable[[random.Random], Reply]]] = {
    "gzip": lambda _: Reply(body=_bomb(), fields={"content-encoding": "gzip"}),
    "gzip-unnamed": lambda _: Reply(body=_bomb()),
    "redirect": lambda rng: Reply(rng.choice([301, 302, 303, 307, 308]), fields={"location": "/elsewhere"}),
    "drip": lambda _: Reply(body=_endless(b" ", pause_s=DRIP_S)),
    "endless": lambda _: Reply(body=_endless(bytes(65_536))),
    "cut": lambda rng: Reply(body=rng.randbytes(200), claimed_bytes=100_000),
    "garbage": lambda rng: Reply(body=rng.randbytes(rng.randrange(5000))),
    "no-http": lambda rng: Reply(raw=rng.randbytes(2000)),
    "endless-head": lambda _: Reply(raw=_endless_head()),
    "statuses": lambda rng: Reply(rng.choice([100, 204, 206, 304, 401, 418, 500, 503, 599])),
    "silent": lambda _: Reply(raw=_endless(b"", pause_s=DRIP_S)),
}
"""Each makes an answer to anything."""


class NoAnswers(Forger):
    """Answers everything in one of the ``WAYS``."""

    def __init__(self, name: str, forge: Forge, *, way: str) -> None:
        super().__init__(name, forge)
        self._way = way

    def reply(self, *_: object) -> Reply:
        """The way's."""
        return WAYS[self._way](self.forge.rng)

    def next_claim(self) -> TxId:
        """Something to ask it for."""
        return self.forge.random_id()


class NoModels(NoAnswers):
    """Sends sound transactions, and answers for their models in one of the ``WAYS``."""

    def __init__(self, name: str, forge: Forge, *, way: str) -> None:
        super().__init__(name, forge, way=way)
        self._made: dict[str, TransactionBundle] = {}

    reply = BadPeer.reply

    def next_claim(self) -> TxId:
        """A new transaction, whose model nobody has."""
        bundle = TransactionBundle(self.forge.sealed(self.forge.rng.randbytes(64)))
        with self._lock:
            self._made[bundle.transaction.id] = bundle
        return bundle.transaction.id

    def transactions(self, ids: Sequence[str]) -> Reply:
        """As an honest peer."""
        with self._lock:
            found = tuple(self._made[each] for each in ids if each in self._made)
        return Reply(body=encode_transactions(found, []))

    def models(self, digests: Sequence[str]) -> Reply:
        """The way's."""
        return WAYS[self._way](self.forge.rng)

    def model(self, digest: str) -> Reply:
        """The way's."""
        return WAYS[self._way](self.forge.rng)


# -- promises that are not kept ---------------------------------------------------------------------


class Withholder(BadPeer):
    """Advertises all that the world has, and keeps back a part of it.

    Args:
        name: As the list calls it.
        key: It is on the list.
        keeps: ``transactions``, ``models``, or ``models-silently``: no answer instead of a no.
    """

    def __init__(self, name: str, key: Ed25519PrivateKey, *, keeps: str) -> None:
        super().__init__(name, key)
        self.keeps = keeps
        self.world: dict[str, TransactionBundle] = {}

    def changes(self, after: str | None) -> Reply:
        """All ids, the newest page of them."""
        ids = list(self.world)[-MAX_CHANGES:]
        return json_reply({"ids": ids, "next": f"world.{len(self.world)}.{after is None}", "more": False})

    def transactions(self, ids: Sequence[str]) -> Reply:
        """As an honest peer, or nothing."""
        if self.keeps == "transactions":
            return WAYS["silent"](random.Random())
        found = tuple(self.world[each] for each in ids if each in self.world)
        return Reply(body=encode_transactions(found, []))

    def models(self, digests: Sequence[str]) -> Reply:
        """It has none, or says nothing."""
        if self.keeps == "models":
            return super().models(digests)
        return WAYS["silent"](random.Random())

    def model(self, digest: str) -> Reply:
        """As ``models``."""
        if self.keeps == "models":
            return super().model(digest)
        return WAYS["silent"](random.Random())


class ParentHider(Forger):
    """Serves children whose parents it says it does not know."""

    def __init__(self, name: str, forge: Forge) -> None:
        super().__init__(name, forge)
        self._children: dict[str, TransactionBundle] = {}

    def next_claim(self) -> TxId:
        """A child of nobody."""
        bundle = TransactionBundle(self.forge.sealed(parents=(self.forge.random_id(),)))
        with self._lock:
            self._children[bundle.transaction.id] = bundle
        return bundle.transaction.id

    def transactions(self, ids: Sequence[str]) -> Reply:
        """Children; of parents it knows nothing."""
        with self._lock:
            found = tuple(self._children[each] for each in ids if each in self._children)
            unknown = tuple(TxId(each) for each in ids if each not in self._children)
        return Reply(body=encode_transactions(found, unknown))


# -- endless ancestors ------------------------------------------------------------------------------


class EndlessChain(Forger):
    """Has a chain of ancestors that never leads to genesis, and lists it from its end to its beginning.

    Signatures are made when a transaction is asked for. It claims to hold few transactions, so that all its ids are
    asked for, and lists them without end.

    Args:
        name: As the list calls it.
        forge: Of the ledger.
        length: Transactions in the chain.
        attachment_bytes: Size of every transaction's attachment; 0: none.
    """

    def __init__(self, name: str, forge: Forge, *, length: int, attachment_bytes: int = 0) -> None:
        super().__init__(name, forge)
        self.length = length
        self.attachment = forge.rng.randbytes(attachment_bytes) if attachment_bytes else None
        digest = Digest(ZERO_ID) if self.attachment is None else digest_of(self.attachment)
        header = forge.header(forge.model(), attachment_digest=digest)
        self._headers: dict[TxId, Header] = {}
        parent = forge.random_id()
        for sequence in range(length):
            header = replace(header, sequence=sequence, parents=(parent,))
            parent = transaction_id(header.encode())
            self._headers[parent] = header
        self._ids = list(self._headers)
        self.served = 0
        """Headers that were sent."""
        self.listed = 0
        """Ids that were sent."""

    def _bundle(self, transaction: TxId) -> TransactionBundle:
        sealed = seal(self._headers[transaction], author_key=AUTHOR_KEY, issuer=self.forge.issuer)
        return TransactionBundle(sealed, self.attachment)

    def tip(self, number: int) -> TxId:
        """The end of the chain, or one that many before it."""
        return self._ids[-1 - number % self.length]

    def changes(self, after: str | None) -> Reply:
        """From the end to the beginning, and round again."""
        start = int(after) if after and after.isdecimal() else 0
        ids = [self.tip(start + number) for number in range(MAX_CHANGES)]
        self.listed += MAX_CHANGES
        return json_reply({"ids": ids, "next": str(start + MAX_CHANGES), "more": True})

    def summary(self) -> Reply:
        """Few transactions, and not those of anybody else."""
        made = StateSummary(
            self.forge.ledger,
            self.public_key,
            "ab" * 16,
            1000,
            Digest(self.forge.random_id()),
            self.forge.random_id(),
            Digest(self.forge.random_id()),
            CREATED_AT_MS,
        )
        return Reply(body=sign_summary(made, self.key))

    def transactions(self, ids: Sequence[str]) -> Reply:
        """Those asked for, as many as an answer may hold."""
        asked = [TxId(each) for each in ids if each in self._headers]
        if self.attachment is not None:
            asked = asked[: (8 << 20) // len(self.attachment) - 1]
        self.served += len(asked)
        return Reply(body=encode_transactions([self._bundle(each) for each in asked], []))


class Announcing(threading.Thread):
    """Announces a claim of each peer in turn, again and again, so that nobody forgets them.

    Args:
        lines: With each, where its claims come from.
        pause_s: Between two rounds.
    """

    def __init__(self, lines: Sequence[tuple[Line, Callable[[], TxId]]], *, pause_s: float) -> None:
        super().__init__(daemon=True)
        self._lines, self._pause_s = lines, pause_s
        self._ending = threading.Event()
        self.made = 0

    def run(self) -> None:
        """Until told to end."""
        while not self._ending.wait(self._pause_s):
            for line, next_claim in self._lines:
                line.claim(next_claim())
                self.made += 1
        for line, _ in self._lines:
            line.hang_up()

    def stop(self) -> None:
        """Tell it to end, and wait."""
        self._ending.set()
        self.join(20)
