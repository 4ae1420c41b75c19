import asyncio
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from fl_core.errors import ParameterError
from ledger_server.store.errors import SchemaBehindError, StoreUnavailableError
from ledger_server.store.tokens import TokenStore
from ledger_server.tokens import FRESH_S, Scope, TokenBook, TokenRecord, is_token, new_token, token_digest

TOKEN = "dagacfl_" + "A" * 43


def record(name: str = "site", *, token: str = TOKEN, scope: Scope = Scope.CLIENT, expires_at_ms: int | None = None) -> TokenRecord:  # fmt: skip
    return TokenRecord(token_digest(token), name, scope, created_at_ms=1, expires_at_ms=expires_at_ms)


class Readings:
    """A table of tokens that counts how often it is read, and a clock that stands still."""

    def __init__(self, *records: TokenRecord) -> None:
        self.records: Sequence[TokenRecord] = records
        self.count = 0
        self.now_s = 0.0
        self.now_ms = 0
        self.book = TokenBook(self.read, now_ms=lambda: self.now_ms, monotonic_s=lambda: self.now_s)

    def read(self) -> Sequence[TokenRecord]:
        self.count += 1
        return self.records


def test_a_token_is_256_random_bits_behind_a_prefix() -> None:
    tokens = {new_token() for _ in range(100)}
    assert len(tokens) == 100
    assert all(is_token(token) and len(token) == len("dagacfl_") + 43 for token in tokens)


@pytest.mark.parametrize(
    "text", ["", "A" * 51, TOKEN + "A", TOKEN[:-1], TOKEN[:-1] + "=", TOKEN[:-1] + "é", TOKEN + "\n"]
)
def test_what_has_not_the_form_is_no_token(text: str) -> None:
    assert not is_token(text)


def test_a_known_token_is_found_and_others_are_not() -> None:
    readings = Readings(record())
    assert asyncio.run(readings.book.find(TOKEN)) == record()
    assert asyncio.run(readings.book.find("dagacfl_" + "B" * 43)) is None
    assert asyncio.run(readings.book.find(TOKEN.upper())) is None


def test_two_tokens_with_one_beginning_of_the_digest_are_told_apart() -> None:
    twin = replace(record(), digest=token_digest(TOKEN)[:8] + bytes(24))
    assert asyncio.run(Readings(twin).book.find(TOKEN)) is None


def test_a_revoked_token_is_refused_when_the_tokens_are_read_again() -> None:
    readings = Readings(record())
    assert asyncio.run(readings.book.find(TOKEN)) is not None
    readings.records = ()
    readings.now_s = FRESH_S * 0.99
    assert asyncio.run(readings.book.find(TOKEN)) is not None
    readings.now_s = FRESH_S
    assert asyncio.run(readings.book.find(TOKEN)) is None
    assert FRESH_S <= 0.5, "a revocation counts within a second, reading included"


def test_a_token_ends_at_its_time_without_another_reading() -> None:
    readings = Readings(record(expires_at_ms=1000))
    readings.now_ms = 999
    assert asyncio.run(readings.book.find(TOKEN)) is not None
    readings.now_ms = 1000
    assert asyncio.run(readings.book.find(TOKEN)) is None
    assert readings.count == 1


def test_many_requests_at_once_cause_one_reading() -> None:
    readings = Readings(record())

    async def ask() -> list[TokenRecord | None]:
        return await asyncio.gather(*(readings.book.find(TOKEN) for _ in range(50)))

    assert asyncio.run(ask()) == [record()] * 50
    assert readings.count == 1


def test_guessing_reads_nothing() -> None:
    readings = Readings(record())
    for guess in (f"dagacfl_{number:043d}" for number in range(100)):
        assert asyncio.run(readings.book.find(guess)) is None
    assert readings.count == 1
    assert asyncio.run(Readings().book.find("no token")) is None


def test_nobody_is_let_in_on_old_knowledge_when_the_tokens_cannot_be_read() -> None:
    readings = Readings(record())
    assert asyncio.run(readings.book.find(TOKEN)) is not None
    readings.now_s = 60.0
    readings.book._read = broken
    with pytest.raises(StoreUnavailableError):
        asyncio.run(readings.book.find(TOKEN))


def broken() -> Sequence[TokenRecord]:
    raise StoreUnavailableError("the disk is gone")


@pytest.mark.parametrize(
    ("has", "wanted", "enough"),
    [("client", "client", True), ("client", "operator", False), ("operator", "client", True), ("operator", "operator", True)],
)  # fmt: skip
def test_an_operator_may_what_a_client_may(has: str, wanted: str, enough: bool) -> None:  # noqa: FBT001 (pytest)
    assert Scope(has).covers(Scope(wanted)) is enough


def test_tokens_come_back_from_the_database_as_they_were_kept(database_url: str) -> None:
    store = TokenStore(database_url)
    kept = [
        record("a"),
        replace(record("b", token=new_token(), scope=Scope.OPERATOR), created_at_ms=2, expires_at_ms=1 << 42),
    ]
    for each in kept:
        store.add(each)
    assert store.all() == kept
    assert sorted(store.unrevoked(), key=lambda each: each.name) == kept
    store.close()


def test_a_token_is_revoked_by_name_or_id_and_its_name_is_free_again(database_url: str) -> None:
    store = TokenStore(database_url)
    first, second = record("a"), record("a", token=new_token())
    store.add(first)
    with pytest.raises(ParameterError, match="already"):
        store.add(second)
    assert store.revoke("a", now_ms=5) == first
    assert store.unrevoked() == []
    with pytest.raises(ParameterError, match="no token"):
        store.revoke("a", now_ms=6)
    store.add(second)
    assert store.revoke(second.id, now_ms=7) == second
    assert {each.revoked_at_ms for each in store.all()} == {5, 7}
    with pytest.raises(ParameterError, match="already"):
        store.add(replace(first, name="other"))
    store.close()


def test_the_tokens_table_keeps_no_token(sqlite_url: str) -> None:
    token = new_token()
    store = TokenStore(sqlite_url)
    store.add(record("a", token=token))
    store.close()
    stored = Path(sqlite_url.removeprefix("sqlite:///")).read_bytes()
    assert token_digest(token) in stored
    assert token.removeprefix("dagacfl_").encode() not in stored


def test_another_process_s_revocation_is_seen(database_url: str) -> None:
    store = TokenStore(database_url)
    store.add(record("a"))
    assert len(store.unrevoked()) == 1
    program = (
        "import sys; from ledger_server.store.tokens import TokenStore; TokenStore(sys.argv[1]).revoke('a', now_ms=9)"
    )
    subprocess.run([sys.executable, "-c", program, database_url], check=True)
    assert store.unrevoked() == []
    store.close()


def test_a_database_without_the_table_names_the_command(tmp_path: Path) -> None:
    with pytest.raises(SchemaBehindError, match="dag-acfl db upgrade"):
        TokenStore(f"sqlite:///{tmp_path}/empty.sqlite3")
