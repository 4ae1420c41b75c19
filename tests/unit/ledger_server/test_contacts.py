"""A peer that refuses, does not answer or lags is seen: in the log once for each change, in the metrics always."""

import logging
from dataclasses import dataclass, field

import pytest

from fl_core.sync.effects import Failure
from fl_core.types import PublicKey
from ledger_server.gossip.contacts import CALM_S, Contacts
from ledger_server.gossip.errors import LinkError
from ledger_server.http.problems import Problem
from ledger_server.metrics import Metrics
from ledger_server.peers import Peer

ANN = PublicKey("a" * 64)
DOWN = LinkError(Failure.UNREACHABLE, "ConnectionRefusedError: nobody listens")


def refusal(code: str) -> LinkError:
    """What a link makes of the answer that a server of ours really gives."""
    problem = Problem(code, "what the peer says of it")
    return LinkError.refused(problem.status, bytes(problem.response().body))


@dataclass
class Watched:
    """The contacts of a server with one peer, and a clock."""

    now_s: float = 1000.0
    metrics: Metrics = field(default_factory=Metrics)

    def __post_init__(self) -> None:
        ann, other = Peer("ann", "http://127.0.0.1:1", ANN), Peer("far", "http://127.0.0.1:2", PublicKey("b" * 64))
        self.contacts = Contacts(metrics=self.metrics, now_ms=lambda: round(self.now_s * 1000))
        self.contacts.set_peers([ann], [other])

    def sample(self, name: str, **labels: str) -> float | None:
        """A figure of the peer's, as a scrape would show it, with 12 transactions here."""

        def measure() -> None:
            self.metrics.show_peers(self.contacts.states(is_banned=lambda _: False), transactions=12)

        self.metrics.exposition(measure)
        return self.metrics.registry.get_sample_value(f"dag_acfl_{name}", {"peer": "ann", **labels})


@pytest.fixture(autouse=True)
def listening(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="ledger_server.gossip.contacts")


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    """The lines of the log: what, and the reason where there is one."""
    return [
        ": ".join(filter(None, (each.getMessage(), each.__dict__.get("reason", "").partition(":")[0])))
        for each in caplog.records
    ]


@pytest.mark.parametrize(
    ("code", "line"),
    [
        ("peer-unknown", "401 peer-unknown: this server is no member that it knows"),
        (
            "peer-signature-stale",
            "401 peer-signature-stale: it has just started, or its clock and this server's differ by more than 60 s",
        ),
        ("peer-banned", "403 peer-banned: it takes nothing from this server any more"),
        ("peer-wrong-recipient", "403 peer-wrong-recipient: it has another key"),
        ("internal-error", "500 internal-error"),
        ("store-unavailable", "503 store-unavailable"),
    ],
)
def test_a_refusal_is_told_once_with_its_reason_and_counted_each_time(
    code: str, line: str, caplog: pytest.LogCaptureFixture
) -> None:
    watched = Watched()
    for _ in range(40):
        watched.now_s += 5
        watched.contacts.heard(ANN)  # it goes on asking, as a server does whose own list is right
        watched.contacts.failed(ANN, refusal(code))
    (record,) = caplog.records
    assert (record.levelname, record.getMessage()) == ("WARNING", "peer refuses this server")
    assert (record.__dict__["peer"], record.__dict__["url"]) == ("ann", "http://127.0.0.1:1")
    assert record.__dict__["reason"].startswith(line)
    assert watched.sample("peer_failures_total", reason=code) == 40
    assert watched.sample("peer_up") == 0


def test_each_change_has_a_line_and_the_end_too(caplog: pytest.LogCaptureFixture) -> None:
    watched = Watched()
    for error in (DOWN, DOWN, refusal("draining"), DOWN, refusal("peer-unknown")):
        watched.contacts.failed(ANN, error)
    watched.now_s += CALM_S
    watched.contacts.answered(ANN)
    watched.contacts.failed(ANN, DOWN)
    assert told(caplog) == [
        "peer does not answer: ConnectionRefusedError",
        "peer refuses this server: 503 draining",
        "peer refuses this server: 401 peer-unknown",
        "peer answers again",
        "peer does not answer: ConnectionRefusedError",
    ]


def test_a_peer_that_does_half_its_work_does_not_fill_the_log(caplog: pytest.LogCaptureFixture) -> None:
    watched = Watched()
    for _ in range(100):  # a bucket of the peer's is away: ids come, models do not
        watched.now_s += 5
        watched.contacts.failed(ANN, LinkError.refused(503))
        watched.contacts.answered(ANN)
    assert told(caplog) == ["peer refuses this server: 503"]
    assert watched.sample("peer_failures_total", reason="refused") == 100


@pytest.mark.parametrize(
    "error",
    [
        refusal("too-busy"),
        refusal("too-many-connections"),
        LinkError(Failure.LOCAL, "the disk is full"),
        LinkError(Failure.REFUSED, "this ledger does not go by its checkpoint"),
    ],
    ids=str,
)
def test_a_busy_peer_and_what_fails_here_are_no_news_of_the_peer(
    error: LinkError, caplog: pytest.LogCaptureFixture
) -> None:
    watched = Watched()
    watched.contacts.answered(ANN)
    watched.contacts.failed(ANN, error)
    assert (told(caplog), watched.sample("peer_up")) == ([], 1)


def test_a_problem_that_no_server_of_ours_has_is_no_label() -> None:
    watched = Watched()
    for body in (b'{"type":"/problems/made-up"}', b'{"type":"/problems/' + b"x" * 10_000, b"\xff[", b""):
        watched.contacts.failed(ANN, LinkError.refused(403, body))
    assert watched.sample("peer_failures_total", reason="refused") == 4


def test_a_peer_is_up_from_its_first_answer_and_silence_counts_from_the_start() -> None:
    watched = Watched()
    watched.now_s += 70
    assert (watched.sample("peer_up"), watched.sample("peer_last_heard_seconds")) == (0, 70)
    watched.contacts.answered(ANN)
    watched.now_s += 20
    assert (watched.sample("peer_up"), watched.sample("peer_last_heard_seconds")) == (1, 20)
    watched.now_s += 3600
    watched.contacts.heard(ANN)
    assert watched.sample("peer_last_heard_seconds") == 0


def test_a_peer_is_behind_by_what_it_does_not_say_that_it_holds() -> None:
    watched = Watched()
    assert watched.sample("peer_behind") is None, "it has said nothing yet"
    watched.contacts.showed(ANN, 9)
    assert watched.sample("peer_behind") == 12 - 9
    watched.contacts.showed(ANN, 15)
    assert watched.sample("peer_behind") == 0


def test_servers_that_are_left_to_others_and_peers_that_are_gone_have_no_series() -> None:
    watched = Watched()
    watched.sample("peer_up")
    assert b'peer="far"' not in watched.metrics.exposition()
    assert b'dag_acfl_peer_up{peer="ann"}' in watched.metrics.exposition()
    assert b"dag_acfl_peer_up{" not in watched.metrics.exposition(
        lambda: watched.metrics.show_peers([], transactions=1)
    )


def test_what_was_under_way_when_a_peer_left_is_no_news_of_it(caplog: pytest.LogCaptureFixture) -> None:
    watched = Watched()
    ann = watched.contacts.states(is_banned=lambda _: False)[0].peer
    watched.contacts.failed(ANN, DOWN)
    watched.contacts.set_peers([], [])
    caplog.clear()
    watched.contacts.failed(ANN, DOWN)
    watched.contacts.answered(ANN)
    watched.contacts.showed(ANN, 9)
    watched.contacts.set_peers([ann], [])
    assert told(caplog) == []
    assert (watched.sample("peer_up"), watched.sample("peer_behind")) == (0, None), "it begins anew"
