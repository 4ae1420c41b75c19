import pytest
from hypothesis import given
from hypothesis import strategies as st

from fl_core.dag.signature import public_key_of
from fl_core.errors import ParameterError
from ledger_server.peers import Peer, others, parse_peer, parse_peers
from tests.builders import key_from_seed

WEAK_KEYS = ("00" * 32, "01" + "00" * 31, "ec" + "ff" * 30 + "7f", "ee" + "ff" * 30 + "7f")
A, B = (public_key_of(key_from_seed(seed)) for seed in (1, 2))


def test_a_peer_is_read_from_one_word_and_shown_as_it() -> None:
    peer = parse_peer(f"hospital-b=https://ledger.example:8443#{A}")
    assert peer == Peer("hospital-b", "https://ledger.example:8443", A)
    assert parse_peer(str(peer)) == peer
    assert parse_peer(f"b=http://[::1]:8900/#{A}").url == "http://[::1]:8900"


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("", "NAME=URL#KEY"),
        (f"http://a#{A}", "NAME=URL#KEY"),
        ("a=http://a", "NAME=URL#KEY"),
        (f"A b=http://a#{A}", "lower-case"),
        (f"-a=http://a#{A}", "lower-case"),
        (f"a=file:///etc/passwd#{A}", "peer a: its address"),
        (f"a=ftp://a#{A}", "peer a: its address"),
        (f"a=a:8900#{A}", "peer a: its address"),
        (f"a=http://#{A}", "peer a: its address"),
        (f"a=http://user:secret@a#{A}", "peer a: its address"),
        (f"a=http://a:99999#{A}", "peer a: its address"),
        (f"a=http://a:0#{A}", "peer a: its address"),
        (f"a=http://a/v1#{A}", "ends after host and port"),
        (f"a=http://a?x=1#{A}", "ends after host and port"),
        (f"a=http://169.254.169.254#{A}", "no address that a peer can have"),
        (f"a=http://[fe80::1]#{A}", "no address that a peer can have"),
        (f"a=http://0.0.0.0:8900#{A}", "no address that a peer can have"),
        (f"a=http://224.0.0.1#{A}", "no address that a peer can have"),
        (f"a=http://a#{A[:-1]}", "64 lower-case hexadecimal digits"),
        (f"a=http://a#{A.upper()}", "64 lower-case hexadecimal digits"),
        *((f"a=http://a#{key}", "small-order") for key in WEAK_KEYS),
    ],
)
def test_what_is_no_peer_is_refused_by_name(text: str, named: str) -> None:
    with pytest.raises(ParameterError, match=named) as caught:
        parse_peer(text)
    assert "secret" not in str(caught.value)


@given(st.text(max_size=80))
def test_any_text_is_a_peer_or_a_parameter_error(text: str) -> None:
    for written in (text, f"a=http://{text}#{A}", f"a={text}#{A}", f"{text}=http://a#{A}"):
        try:
            peer = parse_peer(written)
        except ParameterError:
            continue
        assert parse_peer(str(peer)) == peer


def test_a_list_is_written_in_a_variable_with_spaces_or_commas() -> None:
    words = [f"a=http://a#{A}", f"b=http://b#{B}"]
    assert parse_peers(words) == parse_peers(" ".join(words)) == parse_peers(f" {words[0]} ,\n{words[1]},")
    assert parse_peers("") == ()


@pytest.mark.parametrize(("second", "named"), [(f"a=http://b#{B}", "name a"), (f"b=http://b#{A}", "key")])
def test_a_name_or_a_key_stands_once(second: str, named: str) -> None:
    with pytest.raises(ParameterError, match=f"two peers have the {named}"):
        parse_peers([f"a=http://a#{A}", second])


def test_every_server_can_have_the_same_list() -> None:
    peers = parse_peers([f"a=http://a#{A}", f"b=http://b#{B}"])
    assert [peer.name for peer in others(peers, B)] == ["a"]
