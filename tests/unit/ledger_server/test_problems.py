import json
from typing import Annotated

import pytest
from fastapi import FastAPI, Query
from fastapi.testclient import TestClient
from pydantic import BaseModel, ConfigDict

from fl_core.errors import DagAcflError, ModelNormError, ParentsUnknownError
from ledger_server.http.middleware import RequestMiddleware
from ledger_server.http.problems import Problem, register
from ledger_server.http.state import ServerState
from ledger_server.settings import Settings

pytestmark = pytest.mark.filterwarnings("ignore:Using `httpx` with")  # starlette's opinion on test clients


class Message(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)
    count: int


@pytest.fixture
def client() -> TestClient:
    app = FastAPI()
    register(app)

    @app.get("/parents")
    def parents() -> None:
        raise ParentsUnknownError(missing=["aa", "bb"])

    @app.get("/norm")
    def norm() -> None:
        raise ModelNormError("too large", norm=float("inf"), bound=2.0)

    @app.get("/no-row")
    def no_row() -> None:
        class NewError(DagAcflError):
            code = "no-row"

        raise NewError("secret")

    @app.get("/bug")
    def bug() -> None:
        raise RuntimeError("secret")

    @app.get("/busy")
    def busy() -> None:
        raise Problem("too-busy", "no room", headers={"retry-after": "30"})

    @app.post("/message")
    def message(body: Message) -> None:
        del body

    @app.get("/query")
    def query(limit: Annotated[int, Query(ge=1)]) -> None:
        del limit

    app.add_middleware(RequestMiddleware, server=ServerState(Settings()))
    return TestClient(app, raise_server_exceptions=False)


def test_a_domain_error_has_the_status_of_its_row_and_its_own_fields(client: TestClient) -> None:
    answer = client.get("/parents")
    assert answer.status_code == 409
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json() == {
        "request_id": answer.headers["x-request-id"],
        "type": "/problems/parents-unknown",
        "title": "Parents are unknown here",
        "status": 409,
        "detail": "parents are unknown here",
        "missing": ["aa", "bb"],
    }


def test_numbers_that_json_does_not_have_are_text(client: TestClient) -> None:
    assert client.get("/norm").json()["norm"] == "inf"


@pytest.mark.parametrize("path", ["/bug", "/no-row"])
def test_what_nobody_foresaw_is_a_500_that_tells_nothing(
    client: TestClient, path: str, caplog: pytest.LogCaptureFixture
) -> None:
    answer = client.get(path)
    assert answer.status_code == 500
    assert answer.json()["type"] == "/problems/internal-error"
    assert "secret" not in answer.text
    assert any(record.exc_info for record in caplog.records)


def test_waiting_helps_is_a_header(client: TestClient) -> None:
    assert client.get("/busy").headers["retry-after"] == "30"
    assert Problem("draining").headers["retry-after"] == "1"
    assert "retry-after" not in Problem("query-invalid").headers


def test_a_validation_error_names_the_place_and_never_the_value(client: TestClient) -> None:
    body = b'{"count": "s3cret", "ex\\u202etra": NaN}'
    answer = client.post("/message", content=body, headers={"content-type": "application/json"})
    assert answer.status_code == 422
    content = answer.json()
    assert content["type"] == "/problems/request-invalid"
    assert {error["where"] for error in content["errors"]} == {"body/count", "body/ex?tra"}
    assert "s3cret" not in answer.text
    assert client.get("/query?limit=s3cret").status_code == 422


def test_a_problem_is_ascii_whatever_it_says() -> None:
    body = bytes(Problem("json-malformed", "a\ud800b", extensions={"missing": ["é"]}).response("id-1").body)
    assert json.loads(body.decode("ascii"))["request_id"] == "id-1"


def test_what_a_sender_wrote_is_repeated_short_and_printable() -> None:
    problem = Problem("body-malformed", "no form: \x1b[2J\u202e" + 1000 * "x")
    assert problem.detail.isprintable()
    assert len(problem.detail) == 500
