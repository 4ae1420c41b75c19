"""Whom a busy server lets in: publications before fetches before questions, and questions in turn."""

from fl_core.wire import v1
from ledger_server.http.admission import LATE_S, Admission
from ledger_server.shares import Shares


class Busy:
    """A server with room for 16 requests, of which so many are at work, each another caller's."""

    def __init__(self, at_work: int = 0) -> None:
        self.now_s = 0.0
        self.requests = Shares(16)
        self.admission = Admission(self.requests, 16, lambda: self.now_s)
        self.becomes(at_work)

    def becomes(self, at_work: int) -> None:
        more = at_work - self.admission.at_work
        self.requests.take(None, more)
        self.admission.at_work = at_work

    def asked_to_wait_s(self, caller: str, path: str = v1.SELECTIONS, method: str = "POST") -> int:
        """Seconds; 0 lets it in."""
        problem = self.admission.refusal(method, path, caller, is_counted=False)
        return 0 if problem is None else int(problem.headers["retry-after"])


def test_a_server_that_fills_up_refuses_questions_first_then_fetches_and_publications_last() -> None:
    let_in = {
        at_work: [
            not server.asked_to_wait_s("q"),
            not server.asked_to_wait_s("f", v1.TIPS, "GET"),
            not server.asked_to_wait_s("p", v1.TRANSACTIONS),
        ]
        for at_work in (3, 4, 13, 14, 15, 16)
        for server in [Busy(at_work)]
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
    told = [server.asked_to_wait_s(str(number)) for number in range(10_000)]
    assert (told[0], told[-1]) == (1, 60)
    assert told == sorted(told)


def test_who_comes_back_in_turn_finds_room_that_is_closed_to_newcomers() -> None:
    server = Busy(4)
    assert server.asked_to_wait_s("first") == 1
    server.now_s = 1.0
    assert server.asked_to_wait_s("newcomer") == 1
    assert server.asked_to_wait_s("first") == 0
    assert server.asked_to_wait_s("first") == 1, "its turn is over"
    server.becomes(8)
    server.now_s = 2.0
    assert server.asked_to_wait_s("newcomer") > 0, "in turn, but half of the room is all that there is for questions"


def test_who_comes_before_its_turn_keeps_it_and_who_comes_too_late_has_lost_it() -> None:
    server = Busy(4)
    waited_s = [server.asked_to_wait_s(str(number)) for number in range(200)][-1]
    server.now_s = 1.0
    assert server.asked_to_wait_s("199") == waited_s - 1
    server.now_s = waited_s + LATE_S + 1.0
    assert server.asked_to_wait_s("199") == 1


def test_streams_of_events_are_no_work_and_one_question_alone_is_always_let_in() -> None:
    server = Busy()
    server.requests.take(None, 14)
    assert server.asked_to_wait_s("q") == 0
    server.becomes(1)
    assert server.asked_to_wait_s("q") == 1
