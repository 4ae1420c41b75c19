import io
import json
import logging
import warnings

import pytest
import urllib3

from ledger_server.logs import configure_logging, escape, logging_request


def lines(stream: io.StringIO) -> list[dict[str, object]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_an_event_is_one_json_line_with_its_fields_and_the_request_s_id() -> None:
    stream = io.StringIO()
    configure_logging("info", stream=stream)
    with logging_request("r1"):
        logging.getLogger("ledger_server.x").info("transaction admitted", extra={"parents": 2})
    logging.getLogger("ledger_server.y").info("selected")
    first, second = lines(stream)
    assert (first["event"], first["parents"], first["request_id"], first["level"]) == (
        "transaction admitted", 2, "r1", "info",
    )  # fmt: skip
    assert "request_id" not in second


def test_configuring_again_replaces_and_does_not_double() -> None:
    first, second = io.StringIO(), io.StringIO()
    configure_logging("info", console=False, stream=first)
    configure_logging("warning", console=False, stream=second)
    logging.getLogger("a").info("unheard")
    logging.getLogger("a").warning("heard")
    assert first.getvalue() == ""
    assert [line["event"] for line in lines(second)] == ["heard"]


def test_uvicorn_s_lines_go_the_same_way_once() -> None:
    stream = io.StringIO()
    configure_logging("info", console=False, stream=stream)
    logging.getLogger("uvicorn.error").warning("odd %s", "thing", extra={"color_message": "x"})
    logging.getLogger("uvicorn.error").info("chatter")
    assert [(line["event"], "color_message" in line) for line in lines(stream)] == [("odd thing", False)]


@pytest.mark.parametrize("library", ["alembic.runtime.migration", "fastapi", "httpx", "stamina"])
def test_of_libraries_only_warnings_are_heard_at_any_level(library: str) -> None:
    stream = io.StringIO()
    configure_logging("debug", console=False, stream=stream)
    for logger in (logging.getLogger(library), logging.getLogger("ledger_server.x")):
        logger.debug("a detail")
        logger.info("a step")
        logger.warning("a fault")
    said = [(line["logger"], line["event"]) for line in lines(stream)]
    ours = [("ledger_server.x", event) for event in ("a detail", "a step", "a fault")]
    assert said == [(library, "a fault"), *ours]


def test_a_warning_that_python_shows_is_a_line_like_any_other() -> None:
    stream = io.StringIO()
    logging.captureWarnings(capture=False)  # as in a new process
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        configure_logging("info", console=False, stream=stream)
        warnings.warn("overflow encountered in dot", RuntimeWarning, stacklevel=1)
    logging.captureWarnings(capture=False)
    (line,) = lines(stream)
    assert line["level"] == "warning"
    assert "overflow encountered in dot" in str(line["event"])


def test_no_query_string_of_a_request_to_a_peer_is_logged() -> None:
    stream = io.StringIO()
    configure_logging("debug", console=False, stream=stream)
    pool = urllib3.HTTPConnectionPool("127.0.0.1", 9, retries=urllib3.Retry(1, backoff_factor=0))
    with pytest.raises(urllib3.exceptions.MaxRetryError):
        pool.urlopen("GET", "/v1/gossip/changes?after=secret")
    assert stream.getvalue() == "", "urllib3 warns of each retry with the whole target"


@pytest.mark.parametrize("console", [False, True])
def test_control_characters_reach_no_terminal(*, console: bool) -> None:
    stream = io.StringIO()
    configure_logging("info", console=console, stream=stream)
    # pytest's own handlers must not hear this: its report could not carry a lone surrogate to the controller.
    root = logging.getLogger()
    root.handlers[:] = [handler for handler in root.handlers if getattr(handler, "stream", None) is stream]
    nasty = "a\x1b[31m\r\nb\u202ec\x00\x9b\ud800"
    try:
        raise ValueError(nasty)
    except ValueError:
        logging.getLogger("a").exception("event %s", nasty, extra={"path": nasty, "more": [nasty, {nasty: nasty}]})
    written = stream.getvalue()
    assert not set("\x1b\r\u202e\x00\x9b\ud800") & set(written)
    if not console:
        assert len(written.splitlines()) == 1
        assert lines(stream)[0]["path"] == r"a\x1b[31m\x0d\x0ab\u202ec\x00\x9b\ud800"


def test_escape_keeps_honest_text() -> None:
    assert escape("Zürich 東京 – ok") == "Zürich 東京 – ok"
    assert escape("a\tb\n") == r"a\x09b\x0a"
    assert escape("a\tb\n", multiline=True) == "a\tb\n"
