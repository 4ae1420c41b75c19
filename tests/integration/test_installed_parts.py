"""A selector or an aggregator of another package raises something: who asks and who operates the server read one line."""

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from fl_client import LedgerClient
from fl_core.aggregation import AGGREGATORS, VectorSource
from fl_core.dag.genesis import Component
from fl_core.errors import PartFailedError
from fl_core.parameters import NoParams
from fl_core.registry import Registry
from fl_core.selection import SELECTORS, Selection, SelectionRequest
from fl_core.types import Vector32
from fl_core.wire.v1 import MODEL_MEDIA_TYPE, SELECTIONS
from ledger_server.app import create_app
from ledger_server.settings import load_settings
from tests.builders import ISSUER, key_from_seed, make_genesis, model
from tests.live import Live, client_of, run_app
from tests.serving import prepare


@dataclass(frozen=True)
class Broken:
    params: NoParams = field(default_factory=NoParams)
    name: str = "other"

    def choose(self, request: SelectionRequest) -> Selection:
        raise ValueError("nobody\nis above the median")


@dataclass(frozen=True)
class Forgetful(Broken):
    def choose(self, request: SelectionRequest) -> Any:
        pass


@dataclass(frozen=True)
class NoMean:
    params: NoParams = field(default_factory=NoParams)
    name: str = "other"
    min_models: int = 1

    def aggregate(self, sources: Sequence[VectorSource], weights: Sequence[float]) -> Vector32:
        return {}["mean"]  # type: ignore[no-any-return]

    def shares(self, weights: Sequence[float]) -> list[float]:
        return [1.0] * len(weights)


def place_of(code: str) -> str:
    lines = Path(__file__).read_text("utf-8").splitlines()
    (number,) = [number for number, line in enumerate(lines, start=1) if line.strip().startswith(code)]
    return f"test_installed_parts.py, line {number}"


@pytest.fixture
def live(
    request: pytest.FixtureRequest, sqlite_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Live]:
    """A server whose ledger has two updates, and this part for its selector or its aggregator."""
    part: type[Any] = request.param
    registry: Registry[Any] = SELECTORS if hasattr(part, "choose") else AGGREGATORS
    monkeypatch.setitem(registry._entries, "other", part)  # as an entry point would bring it
    rule = {registry.kind: Component("other")}
    prepare(sqlite_url, tmp_path, genesis=replace(make_genesis(selector="top-k"), **rule))
    settings = load_settings(data_dir=tmp_path, database_url=sqlite_url)
    with run_app(create_app(settings, key=ISSUER), settings) as running:
        for seed in (1, 2):
            with LedgerClient(running.url, key=key_from_seed(seed)) as client:
                client.publish(model(seed, 1, 1, 1), parents=[client.genesis().ledger], num_examples=1)
        yield running


@pytest.mark.parametrize(
    ("live", "said"),
    [
        (Broken, f"selector 'other' failed: {place_of('raise')}: ValueError: nobody is above the median"),
        (Forgetful, "selector 'other' failed: TypeError: choose() returned NoneType, not a Selection"),
        (NoMean, f"aggregator 'other' failed: {place_of('return {}')}: KeyError: 'mean'"),
    ],
    indirect=["live"],
)
def test_what_an_installed_part_raises_is_a_503_that_names_it(
    live: Live, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    said = f"{said}; mend its package on every server"
    asked_with = model(3, 1, 1, 1)
    with client_of(live.url) as http, caplog.at_level(logging.ERROR):
        answer = http.post(SELECTIONS, content=asked_with, headers={"content-type": MODEL_MEDIA_TYPE})
    assert (answer.status_code, answer.json()["type"]) == (503, "/problems/part-failed")
    assert answer.json()["detail"] == said
    failures = [each for each in caplog.records if each.levelno >= logging.ERROR]  # a request before may be told late
    assert [(each.__dict__["reason"], each.exc_info) for each in failures] == [(said, None)]
    with LedgerClient(live.url, key=key_from_seed(9)) as client, pytest.raises(PartFailedError) as refused:
        client.select(model=asked_with)
    assert str(refused.value) == said
