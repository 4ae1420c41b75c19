from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fl_core.dag.acts import ListedMember
from fl_core.dag.signature import public_key_of
from fl_core.errors import ParameterError
from ledger_server.peers import (
    ADDRESS_FILE,
    NOTED_FILE,
    RETIRED_FILE,
    Peer,
    note_address,
    note_peers,
    noted_address,
    noted_peers,
    parse_peer,
    parse_peers,
    peers_of,
    retire_key,
    retired_keys,
)
from tests.builders import key_from_seed

WEAK_KEYS = ("00" * 32, "01" + "00" * 31, "ec" + "ff" * 30 + "7f", "ee" + "ff" * 30 + "7f")
A, B, C = (public_key_of(key_from_seed(seed)) for seed in (1, 2, 3))


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
        *(
            (f"a=http://{host}:8900#{A}", "no address that a peer can have")
            for host in (
                "0.0.0.0",
                "0",
                "169.254.0.1",
                "0xa9fea9fe",
                "2852039166",
                "169.254.43518",
                "0251.0376.0251.0376",
                "[febf::1]",
                "[::ffff:169.254.169.254]",
                "[::ffff:a9fe:a9fe]",
                "[::]",
            )
        ),
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
@settings(max_examples=50)
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


def test_without_members_the_peers_are_those_of_the_settings_and_every_server_can_have_the_same_list() -> None:
    peers = parse_peers([f"a=http://a#{A}", f"b=http://b#{B}"])
    assert [peer.name for peer in peers_of(B, [], configured=peers)] == ["a"]


def test_peers_are_the_other_members_at_the_address_of_their_act() -> None:
    members = [ListedMember(A, "a", "http://a:1"), ListedMember(B, "b", "http://b:1")]
    assert peers_of(B, members, configured=()) == (Peer("a", "http://a:1", A),)
    stranger = Peer("c", "http://c:1", C)
    assert peers_of(B, members, configured=[stranger]) == (Peer("a", "http://a:1", A),), "the settings make no member"


def test_the_settings_say_where_a_member_is_before_its_act_does_and_that_before_what_was_noted() -> None:
    founder, added = ListedMember(A, "founder"), ListedMember(B, "b", "http://b:1")
    noted = [Peer("server-1", "http://a:9", A), Peer("server-2", "http://b:9", B)]
    assert [peer.url for peer in peers_of(C, [founder, added], configured=(), noted=noted)] == [
        "http://a:9",
        "http://b:1",
    ]
    configured = [Peer("mine", "http://b:7", B)]
    assert peers_of(C, [founder, added], configured=configured) == (Peer("mine", "http://b:7", B),)


def test_one_that_changes_its_key_keeps_its_address_and_does_not_speak_to_itself() -> None:
    rotated = ListedMember(B, "b", "", former=A)
    (peer,) = peers_of(C, [rotated], configured=[Peer("b", "http://b:7", A)])
    assert peer == Peer("b", "http://b:7", B, former=A)
    assert peers_of(A, [rotated], configured=[Peer("b", "http://b:7", A)]) == ()


@pytest.mark.parametrize("url", ["", "nonsense", "http://169.254.169.254", "http://b/path"])
def test_a_member_without_an_address_that_a_peer_can_have_is_left_out(url: str) -> None:
    assert peers_of(C, [ListedMember(B, "b", url)], configured=()) == ()


def test_names_that_acts_give_are_made_fit_and_stand_once() -> None:
    members = [ListedMember(A, "Ann & Co", "http://a:1"), ListedMember(B, "b", "http://b:1")]
    assert [peer.name for peer in peers_of(C, members, configured=())] == [A[:8], "b"]
    twins = [replace(each, name="b") for each in members]
    assert [peer.name for peer in peers_of(C, twins, configured=())] == ["b", f"b-{B[:8]}"]


def test_a_members_key_that_anybody_can_sign_for_is_no_peers() -> None:
    weak = ListedMember(type(A)(WEAK_KEYS[0]), "b", "http://b:1")
    assert peers_of(C, [weak], configured=()) == ()


def test_retired_keys_are_read_back_and_what_cannot_be_kept_is_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert retired_keys(tmp_path) == frozenset()
    for key in (A, B):
        retire_key(tmp_path, key)
    assert retired_keys(tmp_path) == {A, B}
    retire_key(tmp_path / "nowhere", C)
    assert caplog.messages == ["a retired key is taken again after a restart"]
    (tmp_path / RETIRED_FILE).write_bytes(b"\xff")
    with pytest.raises(ParameterError, match=RETIRED_FILE):
        retired_keys(tmp_path)


def test_a_torn_line_of_retired_keys_costs_that_key_alone(tmp_path: Path) -> None:
    retire_key(tmp_path, A)
    with (tmp_path / RETIRED_FILE).open("a") as file:
        file.write(B[:20] + "\0\0")
    assert retired_keys(tmp_path) == {A}
    retire_key(tmp_path, C)
    assert retired_keys(tmp_path) == {A, C}


def test_notes_take_the_place_of_a_link_and_what_it_leads_to_stays(tmp_path: Path) -> None:
    (tmp_path / "diary").write_text("mine")
    for name in (NOTED_FILE, ADDRESS_FILE, RETIRED_FILE):
        (tmp_path / name).symlink_to("diary")
    note_peers(tmp_path, [])
    note_address(tmp_path, parse_peer(f"b=http://b#{B}"))
    retire_key(tmp_path, A)
    assert (tmp_path / "diary").read_text() == "mine"
    assert noted_peers(tmp_path) == ()
    assert retired_keys(tmp_path) == {A}


def test_what_was_noted_is_read_back_and_a_damaged_note_is_named(tmp_path: Path) -> None:
    assert noted_peers(tmp_path) == ()
    note_peers(tmp_path, peers := parse_peers([f"a=http://a#{A}", f"b=http://b#{B}"]))
    assert noted_peers(tmp_path) == peers
    (tmp_path / NOTED_FILE).write_text("nonsense")
    with pytest.raises(ParameterError, match=NOTED_FILE):
        noted_peers(tmp_path)


def test_the_own_address_is_read_back_and_a_damaged_note_is_named(tmp_path: Path) -> None:
    assert noted_address(tmp_path) is None
    note_address(tmp_path, own := parse_peer(f"b=http://b.example:8900#{B}"))
    assert noted_address(tmp_path) == own
    (tmp_path / ADDRESS_FILE).write_text("nonsense")
    with pytest.raises(ParameterError, match=ADDRESS_FILE):
        noted_address(tmp_path)
