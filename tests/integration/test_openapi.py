"""The description that others generate clients from matches what the server does."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis.checks import CHECKS, load_all_checks
from starlette.types import Receive, Scope, Send

from fl_core.wire import v1
from tests.builders import make_genesis, model
from tests.serving import Server, serving

load_all_checks()
CHECKED = CHECKS.get_by_names(
    ["not_a_server_error", "status_code_conformance", "content_type_conformance", "response_schema_conformance"]
)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """On SQLite: what a description says does not depend on the database."""
    folder: Path = tmp_path_factory.mktemp("openapi")
    with serving(
        f"sqlite:///{folder / 'ledger.sqlite3'}", folder, genesis=make_genesis(selector_params={"k": 3})
    ) as running:
        published = running.publish(parents=[running.ledger_id], model=model(1))
        running.select(published["id"])
        yield running


def test_every_answer_is_one_that_the_description_names(server: Server) -> None:
    async def answering(scope: Scope, receive: Receive, send: Send) -> None:
        """The application that runs already: schemathesis would start it a second time, in a loop of its own."""
        if scope["type"] != "lifespan":
            await server.app(scope, receive, send)
            return
        for event in ("startup", "shutdown"):
            await receive()
            await send({"type": f"lifespan.{event}.complete"})

    schema = schemathesis.openapi.from_asgi("/openapi.json", answering)
    operations = [found.ok() for found in schema.get_all_operations()]
    tried = 0
    for operation in operations:
        if operation.path == v1.EVENTS:
            continue  # an event stream has no end to compare

        @given(case=operation.as_strategy())
        @settings(max_examples=10, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
        def check(case: Any) -> None:
            nonlocal tried
            tried += 1
            case.validate_response(case.call(), checks=CHECKED)

        check()
    assert tried > 5 * len(operations), "the description was really exercised"


def test_every_route_of_the_protocol_is_described(server: Server) -> None:
    described = set(server.client.get("/openapi.json").json()["paths"])
    routes = {
        value
        for name, value in vars(v1).items()
        if name.isupper() and isinstance(value, str) and value.startswith("/v1")
    }
    assert routes <= described


def test_every_operation_names_its_problems(server: Server) -> None:
    for path, operations in server.client.get("/openapi.json").json()["paths"].items():
        for method, operation in operations.items():
            assert operation["summary"], f"{method} {path}"
            for status in ("400", "413", "422", "500", "503"):
                content = operation["responses"][status]["content"]
                assert list(content) == [v1.PROBLEM_MEDIA_TYPE], f"{method} {path} {status}"
