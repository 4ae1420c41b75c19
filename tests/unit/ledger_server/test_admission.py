"""Whom a busy server lets in: publications before fetches before questions, and questions in turn."""

import pytest

from fl_core.wire import v1
from ledger_server.http.admission import LATE_S, Admission


class Busy:
    """A server with room for 16 requests, with so many fetches in progress, each another caller's."""

    def __init__(self, fetches: int = 0) -> None:
        self.now_s = 0.0
        self.admission = Admission(16, lambda: self.now_s)
        self.takes_in(fetches)

    def takes_in(self, count: int, path: str = v1.TIPS, caller: str | None = None) -> None:
        for _ in range(count):
            self.admission.enter(path, caller)

    def asked_to_wait_s(self, caller: str, path: str = v1.SELECTIONS, method: str = "POST") -> int:
        """Seconds; 0 lets it in."""
        problem = self.admission.refusal(method, path, caller, is_counted=False)
        return 0 if problem is None else int(problem.headers["retry-after"])


def test_a_server_that_fills_up_refuses_questions_first_then_fetches_and_publications_last() -> None:
    let_in = {
        fetches: [
            not server.asked_to_wait_s("q"),
            not server.asked_to_wait_s("f", v1.TIPS, "GET"),
            not server.asked_to_wait_s("p", v1.TRANSACTIONS),
        ]
        for fetches in (3, 4, 13, 14, 15, 16)
        for server in [Busy(fetches)]
    }
    assert let_in == {
        3: [True, True, True],
        4: [False, True, True],
        13: [False, True, True],
        14: [False, False, True],
        15: [False, False, True],
        16: [False, False, False],
    }


def test_the_longer_the_line_the_longer_a_client_is_told_to_wait_and_a_minute_at_most() -> None:
    server = Busy(4)
    told = [server.asked_to_wait_s(str(number)) for number in range(12_000)]
    assert (told[0], told[-1]) == (1, 60)
    assert told == sorted(told)
    server.now_s = 320.0
    assert server.asked_to_wait_s("newcomer") == 1, "10,000 turns of 0.03 s are over; the rest were given none"


def test_who_comes_back_in_turn_finds_room_that_is_closed_to_newcomers() -> None:
    server = Busy(4)
    assert server.asked_to_wait_s("first") == 1
    server.now_s = 1.0
    assert server.asked_to_wait_s("newcomer") == 1
    assert server.asked_to_wait_s("first") == 0
    assert server.asked_to_wait_s("first") == 1, "its turn is over"
    server.takes_in(4, v1.SELECTIONS)
    server.now_s = 2.0
    assert server.asked_to_wait_s("newcomer") > 0, "in turn, but questions fill a quarter of the room"


@pytest.mark.parametrize("path", [v1.SELECTIONS, v1.TRANSACTIONS, v1.TIPS])
def test_whatever_one_caller_holds_another_s_question_gets_in_when_its_turn_comes(path: str) -> None:
    server = Busy()
    while not server.asked_to_wait_s("greedy", path):
        server.takes_in(1, path, "greedy")
    waited_s = server.asked_to_wait_s("other")
    server.now_s = waited_s
    assert server.asked_to_wait_s("other") == 0


def test_one_who_listens_much_leaves_room_for_others_who_listen() -> None:
    server = Busy()
    listening = []
    for caller in ("greedy", "other"):
        while not server.asked_to_wait_s(caller, v1.EVENTS, "GET"):
            server.takes_in(1, v1.EVENTS, caller)
            listening.append(caller)
    assert (listening.count("greedy"), listening.count("other")) == (4, 2)


def test_who_comes_before_its_turn_keeps_it_and_who_comes_too_late_has_lost_it() -> None:
    server = Busy(4)
    waited_s = [server.asked_to_wait_s(str(number)) for number in range(200)][-1]
    server.now_s = 1.0
    assert server.asked_to_wait_s("199") == waited_s - 1
    server.now_s = waited_s + LATE_S + 1.0
    assert server.asked_to_wait_s("199") == 1


def test_streams_of_events_are_no_work_and_one_question_alone_is_always_let_in() -> None:
    server = Busy()
    server.takes_in(14, v1.EVENTS)
    assert server.asked_to_wait_s("q") == 0
    server.takes_in(1)
    assert server.asked_to_wait_s("q") == 1


def test_those_who_gave_up_leave_the_line_though_one_comes_back_turn_after_turn() -> None:
    server = Busy(14)
    server.asked_to_wait_s("steady")
    for number in range(1000):
        server.asked_to_wait_s(f"gone {number}")
    for _ in range(60):
        server.now_s += 1.0
        server.asked_to_wait_s("steady")
    assert server.asked_to_wait_s("newcomer") == 1
