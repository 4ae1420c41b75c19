import asyncio
import json
import math
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from fl_core.errors import ParameterError
from ledger_server.store.errors import StoreUnavailableError
from ledger_server.tokens import FILE, Scope, TokenFile, TokenRecord, is_token, new_token, token_digest

TOKEN = "dagacfl_" + "A" * 43


def record(name: str = "site", *, token: str = TOKEN, scope: Scope = Scope.CLIENT, expires_at_ms: int | None = None) -> TokenRecord:  # fmt: skip
    return TokenRecord(sha256=token_digest(token), name=name, scope=scope, created_at_ms=1, expires_at_ms=expires_at_ms)


class Clock:
    now_ms = 0

    def __call__(self) -> int:
        return self.now_ms


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def tokens(tmp_path: Path, clock: Clock) -> TokenFile:
    return TokenFile(tmp_path / FILE, now_ms=clock)


def test_a_token_is_256_random_bits_behind_a_prefix() -> None:
    tokens = {new_token() for _ in range(100)}
    assert len(tokens) == 100
    assert all(is_token(token) and len(token) == len("dagacfl_") + 43 for token in tokens)


@pytest.mark.parametrize(
    "text", ["", "A" * 51, TOKEN + "A", TOKEN[:-1], TOKEN[:-1] + "=", TOKEN[:-1] + "é", TOKEN + "\n"]
)
def test_what_has_not_the_form_is_no_token(text: str) -> None:
    assert not is_token(text)


def test_a_known_token_is_found_and_others_are_not(tokens: TokenFile) -> None:
    assert asyncio.run(tokens.find(TOKEN)) is None
    tokens.add(record())
    assert asyncio.run(tokens.find(TOKEN)) == record()
    assert asyncio.run(tokens.find("dagacfl_" + "B" * 43)) is None
    assert asyncio.run(tokens.find(TOKEN.upper())) is None
    assert asyncio.run(tokens.find("no token")) is None


def test_another_processs_changes_count_at_once(tokens: TokenFile, tmp_path: Path) -> None:
    other = TokenFile(tmp_path / FILE, now_ms=lambda: 0)
    for _ in range(3):
        other.add(record("a"))
        assert asyncio.run(tokens.find(TOKEN)) == record("a")
        other.revoke("a")
        assert asyncio.run(tokens.find(TOKEN)) is None


def test_a_token_ends_at_its_time(tokens: TokenFile, clock: Clock) -> None:
    tokens.add(record(expires_at_ms=1000))
    clock.now_ms = 999
    assert asyncio.run(tokens.find(TOKEN)) is not None
    clock.now_ms = 1000
    assert asyncio.run(tokens.find(TOKEN)) is None


def test_the_next_end_is_that_of_the_first_valid_token_that_has_one(tokens: TokenFile, clock: Clock) -> None:
    tokens.add(record("for ever"))
    assert tokens.next_end_s() == math.inf
    for name, end_ms in (("late", 9000), ("soon", 5000), ("over", 1000)):
        tokens.add(record(name, token=new_token(), expires_at_ms=end_ms))
    clock.now_ms = 2000
    assert tokens.next_end_s() == 3.0


def test_the_file_is_read_only_when_it_changed(tokens: TokenFile, monkeypatch: pytest.MonkeyPatch) -> None:
    tokens.add(record())
    assert asyncio.run(tokens.find(TOKEN)) is not None
    monkeypatch.setattr(tokens, "records", None)
    assert asyncio.run(tokens.find(TOKEN)) is not None


def line(**changes: object) -> bytes:
    facts = {"name": "b", "scope": "client", "created_at_ms": 1, "expires_at_ms": None, "sha256": 64 * "0"}
    return json.dumps({**facts, **changes}).encode()


@pytest.mark.parametrize(
    "content",
    [
        b"no JSON", b"{}", b"[]", b"5", b"\0", b"", pytest.param(b"\xff", id="no UTF-8"), pytest.param(b"[" * 100_000, id="deep"),
        line(expires_at_ms="tomorrow"), line(expires_at_ms=1.5), line(expires_at_ms=True), line(created_at_ms=None),
        line(sha256="x"), line(sha256="00"), line(sha256=5), line(name=5), line(scope="admin"), line(scope=[]),
    ],
)  # fmt: skip
def test_a_damaged_line_is_named_and_what_was_valid_before_stays_valid(
    tokens: TokenFile, tmp_path: Path, content: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    tokens.add(record())
    damaged = (tmp_path / FILE).read_bytes() + content + b"\n" + line()
    (tmp_path / FILE).write_bytes(damaged)
    with pytest.raises(ParameterError, match=rf"{FILE}, line 2 is not a token's: ") as refused:
        tokens.records()
    assert "\n" not in str(refused.value)
    assert asyncio.run(tokens.find(TOKEN)) is None, "nothing was read before"
    (tmp_path / FILE).write_bytes(line(sha256=token_digest(TOKEN)))
    assert asyncio.run(tokens.find(TOKEN)) is not None
    (tmp_path / FILE).write_bytes(damaged)
    caplog.clear()
    for _ in range(2):
        assert asyncio.run(tokens.find(TOKEN)) is not None
    (said,) = caplog.records
    assert f"{FILE}, line 2" in said.__dict__["reason"]
    with pytest.raises(ParameterError, match="line 2"):
        tokens.add(record("c", token=new_token()))
    assert (tmp_path / FILE).read_bytes() == damaged


def test_tokens_that_cannot_be_read_let_nobody_in(tokens: TokenFile, tmp_path: Path) -> None:
    (tmp_path / FILE).mkdir()
    for _ in range(2):
        with pytest.raises(StoreUnavailableError):
            asyncio.run(tokens.find(TOKEN))


@pytest.mark.parametrize(
    ("has", "wanted", "enough"),
    [
        ("client", "client", True), ("client", "metrics", False), ("client", "operator", False),
        ("metrics", "client", False), ("metrics", "metrics", True), ("metrics", "operator", False),
        ("operator", "client", True), ("operator", "metrics", True), ("operator", "operator", True),
    ],
)  # fmt: skip
def test_an_operator_may_what_the_others_may_and_a_monitor_reads_metrics_alone(
    has: str, wanted: str, *, enough: bool
) -> None:
    assert Scope(has).covers(Scope(wanted)) is enough


def test_tokens_come_back_as_they_were_kept(tokens: TokenFile, tmp_path: Path) -> None:
    kept = [
        record("ä b"),
        record("b", token=new_token(), scope=Scope.OPERATOR, expires_at_ms=1 << 42),
    ]
    for each in kept:
        tokens.add(each)
    assert tokens.records() == kept
    assert stat.S_IMODE((tmp_path / FILE).stat().st_mode) == 0o600
    assert TOKEN not in (tmp_path / FILE).read_text()


def test_a_token_is_revoked_by_name_or_id_and_its_name_is_free_again(tokens: TokenFile) -> None:
    first, second = record("a"), record("a", token=new_token())
    tokens.add(first)
    for taken in (second, first.model_copy(update={"name": "other"})):
        with pytest.raises(ParameterError, match="already"):
            tokens.add(taken)
    assert tokens.revoke("a") == first
    assert tokens.records() == []
    with pytest.raises(ParameterError, match="no token"):
        tokens.revoke("a")
    tokens.add(second)
    assert tokens.revoke(second.id) == second


def test_many_processes_lose_no_change(tmp_path: Path) -> None:
    program = (
        "import sys; from pathlib import Path; from ledger_server.tokens import *\n"
        "tokens = TokenFile(Path(sys.argv[1]), now_ms=lambda: 0)\n"
        "for n in range(5): tokens.add(TokenRecord(sha256=token_digest(new_token()), name=f'{sys.argv[2]}-{n}', scope=Scope.CLIENT, created_at_ms=1))"
    )
    command = [sys.executable, "-c", program, str(tmp_path / FILE)]
    running = [subprocess.Popen([*command, str(number)]) for number in range(2)]
    assert [each.wait() for each in running] == [0, 0]
    assert len(TokenFile(tmp_path / FILE, now_ms=lambda: 0).records()) == 10
