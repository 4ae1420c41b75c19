"""Signatures of requests between servers: one strict profile of RFC 9421, signed and checked here for both sides.

Decides whether a request is a peer's, from what it is given: no clock, no randomness, no network. Which routes ask
for it is decided in ``http.access``.

A signed request carries four fields, each once, and exactly in this form:

    Content-Digest: sha-256=:<base64 of the body's SHA-256; an empty body has one too>:
    Dag-Acfl-To: <the receiver's public key, 64 hexadecimal digits>
    Signature-Input: peer=("@method" "@path" "@query" "content-digest" "dag-acfl-to");created=<seconds>;
        keyid="<the sender's public key>";alg="ed25519";nonce="<22 base64url digits>";tag="dag-acfl-peer"
    Signature: peer=:<base64>:

(Signature-Input is one line.) Checks run from the cheap to the dear, the body last:

1. the fields stand once and have this form: no second label, other algorithm, other or missing component;
2. ``keyid`` is on the list, and the request is meant for this server;
3. ``created`` is within ``WINDOW_S`` of this server's clock;
4. the signature verifies (``PeerVerifier.head``), and its nonce is new;
5. the body is the one that was signed (``VerifiedHead.check_body``).

Deviation from common use: the receiver's key is signed instead of ``@authority``. Proxies rewrite Host, a server does
not know all its own names, and a peer could pass a request for itself on to a third server (docs/adr/0014).
"""

import base64
import hashlib
import hmac
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from fl_core.dag.signature import loaded_key, public_key_of
from fl_core.models import Buffer
from fl_core.types import PublicKey
from ledger_server.http.problems import Problem
from ledger_server.peers import Peer

WINDOW_S: Final = 60
"""How far ``created`` may lie from the receiver's clock, in seconds, either way."""
NONCE_BYTES: Final = 16
NONCES_PER_PEER: Final = 65_536
"""Nonces remembered of one peer (about 8 MB); when there are more, the oldest second is closed early."""
RECIPIENT: Final = "dag-acfl-to"

_COMPONENTS: Final = ("@method", "@path", "@query", "content-digest", RECIPIENT)
_COVERED: Final = "(" + " ".join(f'"{name}"' for name in _COMPONENTS) + ")"
_INPUT: Final = re.compile(
    re.escape(f"peer={_COVERED};created=")
    + r"(?P<created>[1-9][0-9]{0,10});"
    + r'keyid="(?P<key>[0-9a-f]{64})";alg="ed25519";nonce="(?P<nonce>[A-Za-z0-9_-]{22})";tag="dag-acfl-peer"'
)
_SIGNATURE: Final = re.compile(r"peer=:(?P<value>[A-Za-z0-9+/]{86}==):")
_DIGEST: Final = re.compile(r"sha-256=:(?P<value>[A-Za-z0-9+/]{43}=):")
_FIELDS: Final = ("signature-input", "signature", "content-digest", RECIPIENT)
CHALLENGE: Final = {"www-authenticate": 'Signature realm="dag-acfl-peers"'}


def signature_base(components: Sequence[tuple[str, str]], parameters: str) -> bytes:
    """What is signed (RFC 9421, 2.5): a line per component, then the parameters.

    Args:
        components: Name and value of each, in the order of the parameters' list.
        parameters: The member of Signature-Input without its label.
    """
    lines = [f'"{name}": {value}' for name, value in components]
    return "\n".join([*lines, f'"@signature-params": {parameters}']).encode("ascii")


def content_digest(body: Buffer) -> str:
    """The Content-Digest field (RFC 9530) of a body."""
    return f"sha-256=:{base64.b64encode(hashlib.sha256(body).digest()).decode('ascii')}:"


def sign_request(
    key: Ed25519PrivateKey,
    *,
    method: str,
    target: str,
    body: Buffer,
    recipient: PublicKey,
    created_s: int,
    nonce: bytes,
) -> dict[str, str]:
    """The four fields to send with a request.

    Args:
        key: The sender's.
        method: HTTP method, upper case.
        target: Path and query exactly as they are sent, without scheme and host.
        body: All of the body; empty for none.
        recipient: The public key of the server that is asked.
        created_s: Seconds since 1970 UTC.
        nonce: 16 random bytes, new for every request, a repeated one included.
    """
    assert len(nonce) == NONCE_BYTES, "as the receiver wants it"
    path, _, query = target.partition("?")
    digest = content_digest(body)
    text = base64.urlsafe_b64encode(nonce).decode("ascii").rstrip("=")
    parameters = (
        f'{_COVERED};created={created_s};keyid="{public_key_of(key)}";alg="ed25519";nonce="{text}";tag="dag-acfl-peer"'
    )
    base = signature_base(_values(method, path, query, digest, recipient), parameters)
    return {
        "content-digest": digest,
        RECIPIENT: recipient,
        "signature-input": f"peer={parameters}",
        "signature": f"peer=:{base64.b64encode(key.sign(base)).decode('ascii')}:",
    }


def _values(method: str, path: str, query: str, digest: str, recipient: str) -> list[tuple[str, str]]:
    return list(zip(_COMPONENTS, (method, path or "/", f"?{query}", digest, recipient), strict=True))


@dataclass(frozen=True, slots=True)
class VerifiedHead:
    """A request's head that is a peer's; the body is still to be checked."""

    peer: Peer
    _digest: str

    def check_body(self, body: Buffer) -> None:
        """See that the body is the one that was signed.

        Raises:
            Problem: 401 ``peer-digest-mismatch``.
        """
        if not hmac.compare_digest(content_digest(body), self._digest):
            raise _unauthorized("peer-digest-mismatch", "the body is not the one that was signed")


class PeerVerifier:
    """Checks the requests that say that they are peers'.

    Args:
        own_key: This server's public key.
        peers: The allow-list, at first; its keys were checked when it was read (``parse_peers``).
        started_s: When this server began, in seconds since 1970: it has forgotten the nonces of older requests, so it
            takes none of them.
        nonces_per_peer: Most nonces remembered of each peer.
        retired: Former keys of peers that have been heard with their new ones: they are taken no more.
        on_retired: Told of each further one.
    """

    def __init__(
        self,
        own_key: PublicKey,
        peers: Sequence[Peer],
        *,
        started_s: int,
        nonces_per_peer: int = NONCES_PER_PEER,
        retired: Collection[PublicKey] = (),
        on_retired: Callable[[PublicKey], None] = lambda _: None,
    ) -> None:
        self._own_key, self._nonces_per_peer, self._on_retired = own_key, nonces_per_peer, on_retired
        self._peers: dict[PublicKey, Peer] = {}
        self._nonces: dict[PublicKey, _Nonces] = {}
        self._retired = set(retired)
        self.set_peers(peers, since_s=started_s)

    def set_peers(self, peers: Sequence[Peer], *, since_s: int) -> None:
        """From now on these are the peers; of a key that was not taken until now, nothing from before ``since_s`` is.

        A peer whose key was replaced may sign with either, until the new one verifies for the first time.
        """
        found = {peer.public_key: peer for peer in peers}
        for peer in peers:
            if peer.former is not None and peer.former not in self._retired:
                found.setdefault(peer.former, peer)
        for key in found.keys() - self._peers:
            self._nonces[key] = _Nonces(self._nonces_per_peer, closed_s=since_s - 1)
        self._peers = found

    def head(
        self, *, method: str, path: str, query: str, fields: Sequence[tuple[bytes, bytes]], now_s: float
    ) -> VerifiedHead:
        """See whose request this is, before its body is read.

        Args:
            method: HTTP method.
            path: As received, percent-encoding untouched.
            query: As received, without the question mark.
            fields: Header fields, names in lower case.
            now_s: Seconds since 1970 UTC.

        Raises:
            Problem: 401 or 403; the module's list says in which order. No answer tells more than its code.
        """
        found = _one_of_each(fields)
        given = _INPUT.fullmatch(found["signature-input"])
        signature = _SIGNATURE.fullmatch(found["signature"])
        if given is None or signature is None or _DIGEST.fullmatch(found["content-digest"]) is None:
            raise _malformed("they must have the one form of the protocol, with one label and Ed25519")
        peer = self._peers.get(PublicKey(given["key"]))
        if peer is None:
            why = "the key is no member's that this server knows; a member adds it with: dag-acfl members add"
            raise _unauthorized("peer-unknown", why)
        if not hmac.compare_digest(found[RECIPIENT].encode(), self._own_key.encode()):
            raise Problem("peer-wrong-recipient", "the request is signed for another server")
        created_s = int(given["created"])
        if abs(now_s - created_s) > WINDOW_S:
            raise _stale("created lies more than 60 seconds from this server's clock")
        if not (path.isascii() and query.isascii()):
            raise _malformed("a signed path and query are ASCII, percent-encoded")
        values = _values(method, path, query, found["content-digest"], found[RECIPIENT])
        base = signature_base(values, found["signature-input"].removeprefix("peer="))
        key = PublicKey(given["key"])
        self._check_signature(key, base, base64.b64decode(signature["value"]))
        self._nonces[key].use(given["nonce"], created_s, now_s=now_s)
        if peer.former is not None and key == peer.public_key and peer.former not in self._retired:
            self._retired.add(peer.former)
            self._peers.pop(peer.former, None)
            self._on_retired(peer.former)
        return VerifiedHead(peer, found["content-digest"])

    def _check_signature(self, key: PublicKey, base: bytes, signature: bytes) -> None:
        try:
            loaded_key(key).verify(signature, base)
        except InvalidSignature:
            raise _unauthorized("peer-signature-invalid", "the signature does not verify for this request") from None


class _Nonces:
    """One peer's nonces, by the second in which they were created; what is older than any kept second is closed.

    Memory is bounded by closing the oldest second early: a peer that asks very often gets a narrower window, never a
    forgotten nonce, and only for itself.
    """

    def __init__(self, limit: int, *, closed_s: int) -> None:
        self._limit, self._closed_s = limit, closed_s
        self._seconds: dict[int, set[str]] = {}
        self._count = 0

    def use(self, nonce: str, created_s: int, *, now_s: float) -> None:
        """Remember a nonce.

        Raises:
            Problem: 401 when it was used, or may have been.
        """
        for second in [second for second in self._seconds if second < now_s - WINDOW_S]:
            self._close(second)
        if self._closed_s > now_s + WINDOW_S:
            # The clock was set back: what was closed in its wrong future must not shut peers out until then.
            self._closed_s = int(now_s)
        if created_s <= self._closed_s:
            raise _stale("created lies before what this server remembers; sign the request anew")
        used = self._seconds.setdefault(created_s, set())
        if nonce in used:
            raise _unauthorized("peer-nonce-used", "this request was made before; sign it anew to repeat it")
        used.add(nonce)
        self._count += 1
        while self._count > self._limit:
            self._close(min(self._seconds))

    def _close(self, second: int) -> None:
        self._count -= len(self._seconds.pop(second))
        self._closed_s = max(self._closed_s, second)


def _one_of_each(fields: Sequence[tuple[bytes, bytes]]) -> Mapping[str, str]:
    found: dict[str, str] = {}
    for name, value in fields:
        text = name.decode("latin-1")
        if text in _FIELDS:
            if text in found:
                raise _malformed(f"{text} stands twice")
            found[text] = value.decode("latin-1").strip(" \t")
    missing = [name for name in _FIELDS if name not in found]
    if "signature-input" in missing and "signature" in missing:
        raise _unauthorized("peer-signature-required", "peers' requests are signed (RFC 9421)")
    if missing:
        raise _malformed(f"{missing[0]} is missing")
    return found


def _malformed(why: str) -> Problem:
    return _unauthorized("peer-signature-malformed", f"the signature's fields: {why}")


def _stale(why: str) -> Problem:
    return _unauthorized("peer-signature-stale", why)


def _unauthorized(code: str, detail: str) -> Problem:
    """A 401, with the challenge that it must carry (RFC 9110, 11.6.1)."""
    return Problem(code, detail, headers=CHALLENGE)
