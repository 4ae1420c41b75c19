"""docs/openapi.json is what a server answers; `make docs` writes it (docs/generate.py)."""

import json
import re
from pathlib import Path

from fl_core.wire import v1
from ledger_server.app import openapi_document
from tests.serving import serving

FILE = Path(__file__).parents[2] / "docs" / "openapi.json"


def test_the_document_is_what_a_server_answers(sqlite_url: str, tmp_path: Path) -> None:
    committed = json.loads(FILE.read_bytes())
    with serving(sqlite_url, tmp_path) as server:
        assert committed == server.client.get("/openapi.json").json() == server.app.openapi()
    assert committed == openapi_document(), "no ledger is needed to write it"


def test_every_reference_of_the_document_leads_somewhere() -> None:
    text = FILE.read_text("utf-8")
    there = {f"#/components/schemas/{name}" for name in json.loads(text)["components"]["schemas"]}
    assert set(re.findall(r'"\$ref": "([^"]+)"', text)) <= there


def test_the_document_describes_every_route_of_the_wire() -> None:
    paths = json.loads(FILE.read_bytes())["paths"]
    routes = {value for name, value in vars(v1).items() if name.isupper() and str(value).startswith("/v1")}
    assert len(routes) > 10
    assert routes <= paths.keys()
