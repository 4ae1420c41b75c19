"""A transaction has one encoding, one id, and signatures that bind both."""

import contextlib
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fl_core.dag.author import AuthorKind, split_author
from fl_core.dag.encoding import MAX_INTEGER
from fl_core.dag.signature import Role, is_weak_key, public_key_of, sign, verify
from fl_core.dag.transaction import Header, Kind, Transaction, decode_header, transaction_id, verify_author
from fl_core.errors import HeaderMalformedError, ParentsError, SignatureError, TransactionInvalidError
from fl_core.types import ZERO_ID, AuthorId, Digest, PublicKey, TxId
from tests.builders import author_of, key_from_seed, seal

A, B, C = TxId("a" * 64), TxId("b" * 64), TxId("c" * 64)


def header(**changes: object) -> Header:
    plain = Header(
        ledger=A,
        kind=Kind.UPDATE,
        author=author_of(key_from_seed(7)),
        sequence=3,
        created_at_ms=1_700_000_000_000,
        num_examples=60,
        start=Digest("9" * 64),
        model_digest=Digest("d" * 64),
        model_size=176,
        attachment_digest=Digest("e" * 64),
        parents=(B, C),
        metrics={"accuracy": 0.5, "loss": 1.25},
    )
    return replace(plain, **changes)  # type: ignore[arg-type]


hex_ids = st.binary(min_size=32, max_size=32).map(bytes.hex)
counts = st.integers(0, MAX_INTEGER)
names = st.from_regex(r"[a-z0-9_.-]{1,64}", fullmatch=True)
metric_values = st.floats(allow_nan=False, allow_infinity=False).filter(lambda value: str(value) != "-0.0")
headers = st.builds(
    Header,
    ledger=hex_ids.map(TxId),
    kind=st.just(Kind.UPDATE),
    author=st.builds(lambda kind, text: kind.author(text), st.sampled_from(AuthorKind), hex_ids),
    sequence=counts,
    created_at_ms=counts,
    num_examples=counts,
    noise_std=st.floats(0, allow_infinity=False).map(abs),
    start=hex_ids.filter(lambda each: each != ZERO_ID).map(Digest),
    model_digest=hex_ids.map(Digest),
    model_size=counts,
    attachment_digest=hex_ids.map(Digest),
    parents=st.lists(hex_ids.map(TxId), min_size=1, max_size=5, unique=True).map(lambda ids: tuple(sorted(ids))),
    metrics=st.dictionaries(names, metric_values, max_size=5),
    extensions=st.dictionaries(names, st.binary(max_size=20), max_size=3),
)


@given(headers)
def test_decoding_gives_back_what_was_encoded(original: Header) -> None:
    assert decode_header(original.encode()) == original


@given(headers, st.data())
def test_one_flipped_bit_gives_another_transaction_or_none(original: Header, data: st.DataObject) -> None:
    encoded = original.encode()
    bit = data.draw(st.integers(0, 8 * len(encoded) - 1))
    flipped = bytearray(encoded)
    flipped[bit // 8] ^= 1 << (bit % 8)
    assert transaction_id(bytes(flipped)) != transaction_id(encoded)
    with contextlib.suppress(HeaderMalformedError, TransactionInvalidError, ParentsError):
        other = decode_header(bytes(flipped))
        assert other != original
        assert other.encode() == bytes(flipped)


def test_fixed_part_has_212_bytes_and_each_parent_32() -> None:
    bare = header(parents=(B,), metrics={})
    assert len(bare.encode()) == 212 + 32 + 2 + 2
    assert len(header(parents=(B, C), metrics={}).encode()) == 212 + 64 + 2 + 2
    assert bare.encode().startswith(b"dagacfl\x01")


def test_metrics_are_encoded_in_name_order_whatever_order_they_come_in() -> None:
    assert header(metrics={"b": 2.0, "a": 1.0}).encode() == header(metrics={"a": 1.0, "b": 2.0}).encode()


def test_system_metrics_have_room_of_their_own() -> None:
    both = {f"{kind}{i}": 1.0 for kind in ("m", "_m") for i in range(32)}
    assert decode_header(header(metrics=both).encode()).metrics == both


@pytest.mark.parametrize("cut", [0, 7, 100, 211, 212, 270, 300])
def test_a_truncated_header_is_refused(cut: int) -> None:
    with pytest.raises(HeaderMalformedError):
        decode_header(header().encode()[:cut])


def test_trailing_bytes_are_refused() -> None:
    with pytest.raises(HeaderMalformedError):
        decode_header(header().encode() + b"\x00")


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"parents": ()}, ParentsError),
        ({"parents": (C, B)}, ParentsError),
        ({"parents": (B, B)}, ParentsError),
        ({"parents": (TxId("B" * 64),)}, ParentsError),
        ({"kind": Kind.GENESIS}, ParentsError),
        ({"sequence": -1}, TransactionInvalidError),
        ({"sequence": 2**63}, TransactionInvalidError),
        ({"num_examples": 2**64}, TransactionInvalidError),
        ({"author": AuthorId("key:" + "A" * 64)}, TransactionInvalidError),
        ({"author": AuthorId("a" * 64)}, TransactionInvalidError),
        ({"model_digest": Digest("d" * 63)}, TransactionInvalidError),
        ({"metrics": {"Loss": 1.0}}, TransactionInvalidError),
        ({"metrics": {"": 1.0}}, TransactionInvalidError),
        ({"metrics": {"loss": float("nan")}}, TransactionInvalidError),
        ({"metrics": {"loss": float("inf")}}, TransactionInvalidError),
        ({"metrics": {"loss": -0.0}}, TransactionInvalidError),
        ({"metrics": {f"m{i}": 1.0 for i in range(33)}}, TransactionInvalidError),
        ({"metrics": {f"_m{i}": 1.0 for i in range(33)}}, TransactionInvalidError),
        ({"noise_std": -1.0}, TransactionInvalidError),
        ({"noise_std": float("nan")}, TransactionInvalidError),
        ({"noise_std": -0.0}, TransactionInvalidError),
        ({"start": Digest(ZERO_ID)}, TransactionInvalidError),
        ({"extensions": {"A": b""}}, TransactionInvalidError),
        ({"extensions": {"a": bytes(513)}}, TransactionInvalidError),
        ({"extensions": {f"e{i}": b"" for i in range(17)}}, TransactionInvalidError),
    ],
)
def test_a_field_out_of_range_is_refused(changes: dict[str, object], error: type[Exception]) -> None:
    with pytest.raises(error):
        header(**changes)


def test_an_author_with_a_key_and_one_without_are_never_the_same() -> None:
    key = key_from_seed(7)
    named_after_key = AuthorKind.SECRET.author(public_key_of(key))
    assert named_after_key != author_of(key)
    assert split_author(named_after_key) == (AuthorKind.SECRET, public_key_of(key))


def test_signatures_of_two_roles_are_not_interchangeable() -> None:
    key = key_from_seed(7)
    signature = sign(key, A, role=Role.AUTHOR)
    verify(public_key_of(key), A, signature, role=Role.AUTHOR)
    with pytest.raises(SignatureError):
        verify(public_key_of(key), A, signature, role=Role.SELECTION)


def test_a_sealed_transaction_verifies_and_another_authors_does_not() -> None:
    sealed = seal(header(), author_key=key_from_seed(7))
    sealed.verify_signatures()
    with pytest.raises(SignatureError):
        seal(header(), author_key=key_from_seed(8)).verify_signatures()
    later = seal(header(sequence=4)).header_bytes
    with pytest.raises(SignatureError):
        Transaction(later, sealed.author_signature, sealed.receipt).verify_signatures()


def test_author_with_a_secret_cannot_sign_and_a_key_must() -> None:
    vouched_for = header(author=AuthorKind.SECRET.author("1" * 64))
    verify_author(vouched_for, A, None)
    with pytest.raises(SignatureError):
        verify_author(vouched_for, A, b"\x00" * 64)
    with pytest.raises(SignatureError):
        verify_author(header(), A, None)


def test_the_scalar_of_a_signature_must_be_reduced() -> None:
    """S + L verifies in a lenient implementation: the same signature in a second form."""
    order = 2**252 + 27742317777372353535851937790883648493
    key = key_from_seed(7)
    signature = sign(key, A, role=Role.AUTHOR)
    scalar = int.from_bytes(signature[32:], "little") + order
    with pytest.raises(SignatureError):
        verify(public_key_of(key), A, signature[:32] + scalar.to_bytes(32, "little"), role=Role.AUTHOR)


P = 2**255 - 19
SMALL_ORDER = [
    (0).to_bytes(32, "little"),
    (1).to_bytes(32, "little"),
    (P - 1).to_bytes(32, "little"),
    (P).to_bytes(32, "little"),
    (P + 1).to_bytes(32, "little"),
    (1 | 1 << 255).to_bytes(32, "little"),
    (P - 1 | 1 << 255).to_bytes(32, "little"),
    (1 << 255).to_bytes(32, "little"),
    (P | 1 << 255).to_bytes(32, "little"),
    (P + 1 | 1 << 255).to_bytes(32, "little"),
    bytes.fromhex("26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05"),
    bytes.fromhex("26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc85"),
    bytes.fromhex("c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a"),
    bytes.fromhex("c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac03fa"),
]


@pytest.mark.parametrize("encoding", SMALL_ORDER, ids=bytes.hex)
def test_all_fourteen_small_order_keys_are_refused(encoding: bytes) -> None:
    weak = PublicKey(encoding.hex())
    assert is_weak_key(weak)
    with pytest.raises(SignatureError):
        verify(weak, A, b"\x01" + b"\x00" * 63, role=Role.AUTHOR)


@given(st.integers(2, 2**64))
def test_generated_keys_are_not_weak(seed: int) -> None:
    assert not is_weak_key(public_key_of(key_from_seed(seed)))
