import base64
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import pytest
from cryptography.hazmat.primitives.serialization import load_der_private_key, load_der_public_key
from hypothesis import given
from hypothesis import strategies as st

from fl_core.dag.signature import public_key_of
from fl_core.types import PublicKey
from ledger_server.http.peer_signature import (
    NONCE_BYTES,
    WINDOW_S,
    PeerVerifier,
    content_digest,
    sign_request,
    signature_base,
)
from ledger_server.http.problems import Problem
from ledger_server.peers import Peer
from tests.builders import key_from_seed

SENDER, RECEIVER, STRANGER = key_from_seed(1), key_from_seed(2), key_from_seed(3)
PEER = Peer("a", "http://a:8900", public_key_of(SENDER))
NOW_S = 1_700_000_000
BODY = b'{"after": null}'


@dataclass(frozen=True)
class Asked:
    """A request as the receiver sees it."""

    method: str = "POST"
    path: str = "/v1/changes"
    query: str = "limit=2"
    body: bytes = BODY
    fields: tuple[tuple[str, str], ...] = ()

    def without(self, name: str) -> "Asked":
        return replace(self, fields=tuple(pair for pair in self.fields if pair[0] != name))

    def field(self, name: str) -> str:
        return dict(self.fields)[name]

    def changed(self, name: str, change: Callable[[str], str]) -> "Asked":
        return replace(self, fields=tuple((key, change(value) if key == name else value) for key, value in self.fields))


def signed(
    *, nonce: int = 0, created_s: int = NOW_S, to: PublicKey | None = None, key: object = SENDER, body: bytes = BODY
) -> Asked:
    fields = sign_request(
        key,  # type: ignore[arg-type]  # one of the keys above
        method="POST",
        target="/v1/changes?limit=2",
        body=body,
        recipient=to or public_key_of(RECEIVER),
        created_s=created_s,
        nonce=nonce.to_bytes(NONCE_BYTES, "big"),
    )
    return Asked(body=body, fields=tuple(fields.items()))


def verifier(*, peers: Sequence[Peer] = (PEER,), started_s: int = NOW_S - 3600, limit: int = 100) -> PeerVerifier:
    return PeerVerifier(public_key_of(RECEIVER), peers, started_s=started_s, nonces_per_peer=limit)


def check(receiver: PeerVerifier, asked: Asked, *, now_s: float = NOW_S) -> Peer:
    head = receiver.head(
        method=asked.method,
        path=asked.path,
        query=asked.query,
        fields=[(name.encode("latin-1"), value.encode("latin-1")) for name, value in asked.fields],
        now_s=now_s,
    )
    head.check_body(asked.body)
    return head.peer


def refusal(receiver: PeerVerifier, asked: Asked, *, now_s: float = NOW_S) -> tuple[int, str]:
    with pytest.raises(Problem) as caught:
        check(receiver, asked, now_s=now_s)
    if caught.value.status == 401:
        assert "www-authenticate" in caught.value.headers
    return caught.value.status, caught.value.code


def test_signature_base_and_signature_are_those_of_rfc_9421_b_2_6() -> None:
    components = [
        ("date", "Tue, 20 Apr 2021 02:07:55 GMT"),
        ("@method", "POST"),
        ("@path", "/foo"),
        ("@authority", "example.com"),
        ("content-type", "application/json"),
        ("content-length", "18"),
    ]
    parameters = (
        '("date" "@method" "@path" "@authority" "content-type" "content-length")'
        ';created=1618884473;keyid="test-key-ed25519"'
    )
    base = signature_base(components, parameters)
    expected = "wqcAqbmYJ2ji2glfAMaRy4gruYYnx2nEFN2HN6jrnDnQCK1u02Gb04v9EDgwUPiu4A0w6vuQv5lIp5WPpBKRCw=="
    private = load_der_private_key(
        base64.b64decode("MC4CAQAwBQYDK2VwBCIEIJ+DYvh6SEqVTm50DFtMDoQikTmiCqirVv9mWG9qfSnF"), None
    )
    public = load_der_public_key(base64.b64decode("MCowBQYDK2VwAyEAJrQLj5P/89iXES9+vFgrIy29clF9CC/oPPsw3c5D0bs="))
    public.verify(base64.b64decode(expected), base)  # type: ignore[union-attr, call-arg]
    assert base64.b64encode(private.sign(base)).decode() == expected  # type: ignore[union-attr, call-arg]


def test_content_digest_is_that_of_rfc_9530() -> None:
    assert content_digest(b'{"hello": "world"}\n') == "sha-256=:RK/0qy18MlBSVnWgjwz6lZEWjP/lF5HF9bvEF8FabDg=:"


def test_a_signed_request_is_its_peer_s() -> None:
    assert check(verifier(), signed()) == PEER


def test_a_request_without_body_and_query_is_signed_too() -> None:
    fields = sign_request(
        SENDER, method="GET", target="/v1/tips", body=b"", recipient=public_key_of(RECEIVER),
        created_s=NOW_S, nonce=bytes(16),
    )  # fmt: skip
    assert check(verifier(), Asked("GET", "/v1/tips", "", b"", tuple(fields.items()))) == PEER


@given(
    body=st.binary(max_size=64),
    path=st.text("abc/%20AZ~._-", max_size=20),
    query=st.text("abc=&%3F?", max_size=20),
    method=st.sampled_from(["GET", "POST"]),
    nonce=st.binary(min_size=16, max_size=16),
    late_s=st.integers(-WINDOW_S, WINDOW_S),
)
def test_whatever_is_signed_verifies_once(
    *, body: bytes, path: str, query: str, method: str, nonce: bytes, late_s: int
) -> None:
    fields = sign_request(
        SENDER, method=method, target=f"/{path}?{query}", body=body, recipient=public_key_of(RECEIVER),
        created_s=NOW_S - late_s, nonce=nonce,
    )  # fmt: skip
    receiver, asked = verifier(), Asked(method, f"/{path}", query, body, tuple(fields.items()))
    assert check(receiver, asked) == PEER
    assert refusal(receiver, asked) == (401, "peer-nonce-used")


MALFORMED, INVALID = "peer-signature-malformed", "peer-signature-invalid"


@pytest.mark.parametrize(
    ("field", "old", "new", "code"),
    [
        ("content-digest", "sha-256", "md5", MALFORMED),
        ("signature-input", ' "@query"', "", MALFORMED),
        ("signature-input", '"@query"', '"@query" "@authority"', MALFORMED),
        ("signature-input", "ed25519", "hmac-sha256", MALFORMED),
        ("signature-input", ';alg="ed25519"', "", MALFORMED),
        ("signature-input", 'tag="dag-acfl-peer"', 'tag="other"', MALFORMED),
        ("signature-input", 'tag="dag-acfl-peer"', 'tag="dag-acfl-peer", other=()', MALFORMED),
        ("signature-input", "peer=", "sig1=", MALFORMED),
        ("signature-input", "created=1", "created=01", MALFORMED),
        ("signature-input", f"created={NOW_S}", f"created={NOW_S + 1}", INVALID),
        ("signature-input", 'nonce="A', 'nonce="B', INVALID),
        ("signature-input", PEER.public_key, public_key_of(STRANGER), "peer-unknown"),
        ("signature", "peer=:", "peer=:AAAA", MALFORMED),
    ],
)
def test_a_field_that_was_changed_is_refused(field: str, old: str, new: str, code: str) -> None:
    asked = signed()
    assert old in asked.field(field)
    assert refusal(verifier(), asked.changed(field, lambda text: text.replace(old, new))) == (401, code)


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (lambda asked: replace(asked, fields=()), "peer-signature-required"),
        (lambda asked: asked.without("signature"), MALFORMED),
        (lambda asked: asked.without("signature-input"), MALFORMED),
        (lambda asked: asked.without("content-digest"), MALFORMED),
        (lambda asked: asked.without("dag-acfl-to"), MALFORMED),
        (lambda asked: replace(asked, fields=(*asked.fields, asked.fields[-1])), MALFORMED),
        (lambda asked: asked.changed("content-digest", lambda text: f"{text}, {text}"), MALFORMED),
        (lambda asked: asked.changed("signature", lambda _: f"peer=:{'A' * 86}==:"), INVALID),
        (lambda asked: replace(asked, method="PUT"), INVALID),
        (lambda asked: replace(asked, path="/v1/Changes"), INVALID),
        (lambda asked: replace(asked, path="/v1%2Fchanges"), INVALID),
        (lambda asked: replace(asked, path="/v1/\xe9"), MALFORMED),
        (lambda asked: replace(asked, query="limit=3"), INVALID),
        (lambda asked: replace(asked, query=""), INVALID),
        (lambda asked: replace(asked, body=BODY + b" "), "peer-digest-mismatch"),
        (lambda asked: replace(asked, body=b""), "peer-digest-mismatch"),
        (lambda asked: replace(asked.changed("content-digest", lambda _: content_digest(b"x")), body=b"x"), INVALID),
    ],
)
def test_a_request_that_is_not_what_was_signed_is_refused(change: Callable[[Asked], Asked], code: str) -> None:
    assert refusal(verifier(), change(signed())) == (401, code)


def test_a_stranger_s_true_signature_is_refused() -> None:
    assert refusal(verifier(), signed(key=STRANGER)) == (401, "peer-unknown")


def test_a_peer_cannot_sign_in_another_peer_s_name() -> None:
    other = Peer("b", "http://b:8900", public_key_of(STRANGER))
    asked = signed(key=STRANGER).changed(
        "signature-input", lambda text: text.replace(other.public_key, PEER.public_key)
    )
    assert refusal(verifier(peers=[PEER, other]), asked) == (401, "peer-signature-invalid")


def test_a_request_for_one_server_cannot_be_passed_on_to_another() -> None:
    asked = signed(to=public_key_of(STRANGER))
    assert refusal(verifier(), asked) == (403, "peer-wrong-recipient")
    forged = asked.changed("dag-acfl-to", lambda _: public_key_of(RECEIVER))
    assert refusal(verifier(), forged) == (401, "peer-signature-invalid")


def test_a_request_passes_within_a_minute_of_the_clock() -> None:
    for late_s in (-60, 60):
        assert check(verifier(), signed(created_s=NOW_S - late_s)) == PEER
    for late_s in (-61, 61):
        assert refusal(verifier(), signed(created_s=NOW_S - late_s)) == (401, "peer-signature-stale")


def test_a_nonce_is_used_once_as_long_as_its_time_would_pass() -> None:
    receiver, asked = verifier(), signed(created_s=NOW_S + WINDOW_S)
    check(receiver, asked)
    for after_s in (0.0, 60.0, 119.5, 120.0):
        assert refusal(receiver, asked, now_s=NOW_S + after_s) == (401, "peer-nonce-used")
    assert refusal(receiver, asked, now_s=NOW_S + 120.5) == (401, "peer-signature-stale")


def test_a_refused_request_uses_up_no_nonce() -> None:
    receiver = verifier()
    assert refusal(receiver, replace(signed(), query="other")) == (401, "peer-signature-invalid")
    assert check(receiver, signed()) == PEER


def test_requests_from_before_the_server_began_are_refused() -> None:
    receiver = verifier(started_s=NOW_S)
    assert refusal(receiver, signed(created_s=NOW_S - 1)) == (401, "peer-signature-stale")
    assert check(receiver, signed()) == PEER


def test_more_nonces_than_are_remembered_narrow_the_window_and_open_no_replay() -> None:
    receiver = verifier(limit=3)
    requests = [signed(nonce=number, created_s=NOW_S + number) for number in range(5)]
    for asked in requests:
        check(receiver, asked)
    assert [refusal(receiver, asked)[1] for asked in requests] == 2 * ["peer-signature-stale"] + 3 * ["peer-nonce-used"]
    assert refusal(receiver, signed(nonce=9, created_s=NOW_S)) == (401, "peer-signature-stale")
    assert check(receiver, signed(nonce=9, created_s=NOW_S + 5)) == PEER


def test_a_peer_that_asks_too_often_narrows_no_other_s_window() -> None:
    other = Peer("b", "http://b:8900", public_key_of(STRANGER))
    receiver = verifier(peers=[PEER, other], limit=2)
    for number in range(5):
        check(receiver, signed(nonce=number, created_s=NOW_S + number))
    assert check(receiver, signed(key=STRANGER, created_s=NOW_S - 30)) == other


def test_a_clock_that_is_set_back_shuts_no_peer_out() -> None:
    receiver, later_s = verifier(limit=1), NOW_S + 3600
    for number in range(2):
        check(receiver, signed(nonce=number, created_s=later_s + number), now_s=later_s)
    check(receiver, signed(nonce=5, created_s=later_s + 200), now_s=later_s + 200)
    assert refusal(receiver, signed(nonce=6, created_s=NOW_S)) == (401, "peer-signature-stale")
    assert check(receiver, signed(nonce=7, created_s=NOW_S + 1), now_s=NOW_S + 1) == PEER


def test_one_that_is_no_peer_any_more_is_refused_and_heard_again_when_it_is_back() -> None:
    receiver = verifier()
    check(receiver, signed(nonce=1))
    receiver.set_peers([], since_s=NOW_S + 1)
    assert refusal(receiver, signed(nonce=2)) == (401, "peer-unknown")
    receiver.set_peers([PEER], since_s=NOW_S + 5)
    assert refusal(receiver, signed(nonce=1)) == (401, "peer-signature-stale"), "nonces of before are forgotten"
    assert check(receiver, signed(nonce=1, created_s=NOW_S + 5)) == PEER


def test_a_peer_that_stays_keeps_its_nonces_when_others_come() -> None:
    receiver = verifier()
    check(receiver, signed(nonce=1))
    receiver.set_peers([PEER, Peer("b", "http://b:8900", public_key_of(STRANGER))], since_s=NOW_S)
    assert refusal(receiver, signed(nonce=1)) == (401, "peer-nonce-used")


def test_a_peer_that_changes_its_key_may_sign_with_either_until_it_has_used_the_new_one() -> None:
    rotated = Peer("a", "http://a:8900", public_key_of(STRANGER), former=public_key_of(SENDER))
    retired: list[PublicKey] = []
    receiver = PeerVerifier(public_key_of(RECEIVER), [PEER], started_s=NOW_S - 60, on_retired=retired.append)
    check(receiver, signed(nonce=1))
    receiver.set_peers([rotated], since_s=NOW_S)
    assert check(receiver, signed(nonce=2)) == rotated
    assert refusal(receiver, signed(nonce=1)) == (401, "peer-nonce-used")
    assert check(receiver, signed(nonce=3, key=STRANGER)) == rotated
    for _ in range(2):
        assert refusal(receiver, signed(nonce=4)) == (401, "peer-unknown")
        receiver.set_peers([rotated], since_s=NOW_S)
    check(receiver, signed(nonce=5, key=STRANGER))
    assert retired == [public_key_of(SENDER)]
    restarted = PeerVerifier(public_key_of(RECEIVER), [rotated], started_s=NOW_S - 60, retired=retired)
    assert refusal(restarted, signed(nonce=6)) == (401, "peer-unknown"), "before the new one is heard again"
