"""Models by way of a bucket: the client goes where its user said and nowhere else, and a server is always the way out."""

from collections.abc import Iterator
from typing import Any

import pytest

from fl_client import LedgerClient
from fl_client import bucket as module
from fl_core.errors import ParameterError
from fl_core.types import digest_of
from tests.stand_in_server import Answer, StandIn
from tests.unit.fl_client.test_client import client_of, closed_port


@pytest.fixture
def server() -> Iterator[StandIn]:
    with StandIn() as running:
        yield running


@pytest.fixture
def bucket(server: StandIn) -> Iterator[StandIn]:
    """Another address that gives the same models."""
    with StandIn(server.tiny) as running:
        yield running


def path_of(server: StandIn) -> str:
    return f"/v1/models/{digest_of(server.tiny.genesis_model)}"


def leading(server: StandIn, link: str, *, times: int = 1) -> str:
    """Have the server send its next callers there; returns the model's digest."""
    server.spoil("/v1/models", times=times, answer=Answer(307, b"", {"location": link}))
    return digest_of(server.tiny.genesis_model)


def fetching(server: StandIn, bucket: str, **options: Any) -> LedgerClient:
    return client_of(server, bucket=bucket, **options)


def test_a_model_comes_from_the_bucket_by_one_request_without_the_token(server: StandIn, bucket: StandIn) -> None:
    digest = leading(server, f"{bucket.url}{path_of(server)}?X-Amz-Signature=1%2F2")
    with fetching(server, bucket.url, token="not for buckets") as client:
        assert client.download(digest) == server.tiny.genesis_model
        assert client.traffic.received > len(server.tiny.genesis_model)
    (asked,) = bucket.asked
    assert asked.path == f"{path_of(server)}?X-Amz-Signature=1%2F2"
    assert {"authorization", "cookie"}.isdisjoint(asked.headers)
    assert server.asked[-1].path == f"{path_of(server)}?redirect=true"
    assert server.asked[-1].headers["authorization"] == "Bearer not for buckets"


def test_a_client_without_a_bucket_asks_for_no_redirect(server: StandIn, bucket: StandIn) -> None:
    with client_of(server) as client:
        client.download(digest_of(server.tiny.genesis_model))
    assert server.asked[-1].path == path_of(server)
    assert bucket.asked == []


def test_what_lies_in_no_bucket_comes_from_the_server_in_the_same_request(server: StandIn, bucket: StandIn) -> None:
    with fetching(server, bucket.url) as client:
        assert client.download(digest_of(server.tiny.genesis_model)) == server.tiny.genesis_model
    assert server.paths()[-1:] == [f"GET {path_of(server)}?redirect=true"]
    assert bucket.asked == []


@pytest.mark.parametrize(
    "how",
    [
        {"answer": Answer(403, b"<Error><Code>AccessDenied</Code><Message>Request has expired</Message></Error>")},
        {"answer": Answer(200, b"\0" * 144)},
        {"answer": Answer(200, b"longer than any model of the ledger" * 100)},
        {"answer": Answer(307, b"", {"location": "http://169.254.169.254/latest/meta-data"})},
        {"cut_after": 10},
        {"hang_up": "before"},
    ],
    ids=["expired", "other bytes", "too many bytes", "a second hop", "cut", "hung up"],
)
def test_a_bucket_that_does_not_give_the_model_costs_a_request_and_no_more(
    server: StandIn, bucket: StandIn, how: dict[str, Any]
) -> None:
    with fetching(server, bucket.url) as client:
        client.genesis()
        digest = leading(server, f"{bucket.url}{path_of(server)}")
        bucket.spoil("/v1/models", **how)
        assert client.download(digest) == server.tiny.genesis_model
    assert len(bucket.asked) == 1
    assert server.paths()[-2:] == [f"GET {path_of(server)}?redirect=true", f"GET {path_of(server)}"]


def test_a_bucket_that_is_out_of_reach_is_left_alone_for_a_minute(
    server: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    away = closed_port()
    with fetching(server, away, cache_bytes=0) as client:
        client.genesis()
        digest = leading(server, f"{away}{path_of(server)}")
        for _ in range(2):
            assert client.download(digest) == server.tiny.genesis_model
        assert server.paths()[-2:] == [f"GET {path_of(server)}"] * 2
        monkeypatch.setattr(module, "_REST_S", -1.0)
        client._bucket.failed()  # type: ignore[union-attr]
        client.download(digest)
    assert server.paths()[-1] == f"GET {path_of(server)}?redirect=true"


@pytest.mark.parametrize(
    "link",
    [
        "http://169.254.169.254/latest/meta-data",
        "https://{host}/models{path}",
        "http://{host}.example.org/models{path}",
        "http://elsewhere@{host}:1/models{path}",
        "http://{host}/modelsofothers{path}",
        "http://{host}/models/../others{path}",
        "http://{host}/models/%2e%2E/others{path}",
        "file:///etc/passwd",
        "http://[::1",
        "",
    ],
)
def test_a_link_that_leads_elsewhere_is_not_followed(server: StandIn, bucket: StandIn, link: str) -> None:
    with fetching(server, f"{bucket.url}/models") as client:
        client.genesis()
        digest = leading(server, link.format(host=bucket.url.removeprefix("http://"), path=path_of(server)))
        assert client.download(digest) == server.tiny.genesis_model
    assert bucket.asked == []


@pytest.mark.parametrize(
    ("servers", "bucket", "says"),
    [
        (["http://a", "https://b"], "http://s3", "has no TLS, and a server has"),
        (["http://a"], "s3://models", "must look like"),
        (["http://a"], "https://key:secret@s3", "takes no user"),
    ],
)
def test_a_bucket_that_cannot_be_used_is_refused_at_once(servers: list[str], bucket: str, says: str) -> None:
    with pytest.raises(ParameterError, match=says):
        client_of(*servers, bucket=bucket)
