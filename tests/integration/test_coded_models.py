"""Models that travel by what they differ by from one that both sides have."""

import struct
import zlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from fl_client import LedgerClient, Participant, ParticipantState, client
from fl_client.training import Arrays, Hints, TrainingResult
from fl_core.dag.author import author_of_secret
from fl_core.dag.transaction import decode_header
from fl_core.models import ModelLayout, TensorSpec, encode_flat, flat
from fl_core.step_coding import encode_step, round_step
from fl_core.types import ZERO_ID, Digest, digest_of
from fl_core.wire import v1
from ledger_server.app import create_app
from ledger_server.gossip.unfolding import Unfolding
from ledger_server.settings import load_settings
from tests.builders import ISSUER, LAYOUT, START, make_genesis, model, new_secret
from tests.live import run_app
from tests.serving import NOW_MS, Server, prepare, publication, serving, signed
from tests.tiny_trainer import TinyTrainer

GENESIS = model(1, 1, 1, 1)
WIDE = ModelLayout.of([TensorSpec("fc.weight", "F32", (100, 90)), TensorSpec("fc.bias", "F32", (90,))])


@pytest.fixture
def server(sqlite_url: str, tmp_path: Path) -> Iterator[Server]:
    with serving(sqlite_url, tmp_path) as running:
        yield running


def sent(server: Server, model_bytes: bytes, coded: bytes) -> tuple[int, str]:
    """Publish a signed model coded; status, and the model's digest or the problem's type."""
    parts = publication(signed(server, model_bytes), coded)
    name, data, _ = parts["model"]
    answer = server.client.post(v1.TRANSACTIONS, files={**parts, "model": (name, data, v1.STEP_MEDIA_TYPE)})
    content = answer.json()
    return answer.status_code, content["model"]["digest"] if answer.status_code < 300 else content["type"]


def test_a_model_that_comes_coded_is_published_as_the_model_that_it_is(server: Server) -> None:
    trained = model(1.25, 2, 3)
    coded = encode_step(LAYOUT, trained, GENESIS, base_digest=digest_of(GENESIS))
    assert sent(server, trained, coded) == (201, digest_of(trained))
    assert server.get(f"/v1/models/{digest_of(trained)}").content == trained
    assert sent(server, trained, trained) == (422, "/problems/model-malformed")
    assert server.post(signed(server, trained), trained).status_code == 200  # the same transaction, whole


def test_who_codes_by_a_model_that_is_not_here_is_asked_for_the_whole(server: Server) -> None:
    other = model(7)
    coded = encode_step(LAYOUT, model(1), other, base_digest=digest_of(other))
    assert sent(server, model(1), coded) == (409, "/problems/base-unknown")
    alone = encode_step(LAYOUT, model(1), None, base_digest=Digest(ZERO_ID))
    assert sent(server, model(1), alone)[0] == 201


def test_a_coded_model_upon_unknown_parents_is_refused_before_it_is_decoded(server: Server) -> None:
    parts = publication(
        {"num_examples": 1, "secret": new_secret(), "parents": ["ab" * 32], "start": START}, b"no model"
    )
    name, data, _ = parts["model"]
    answer = server.client.post(v1.TRANSACTIONS, files={**parts, "model": (name, data, v1.STEP_MEDIA_TYPE)})
    assert (answer.status_code, answer.json()["type"]) == (409, "/problems/parents-unknown")


def test_hostile_bodies_are_refused_and_change_nothing(server: Server) -> None:
    by_genesis = b"dag-acfl step 1\n" + bytes.fromhex(digest_of(GENESIS)) + struct.pack("<hh", 0x7FFF, 0x7FFF)
    bomb = zlib.compress(bytes(30_000_000))
    nan = model(float("nan"))
    honest = encode_step(LAYOUT, model(2), GENESIS, base_digest=digest_of(GENESIS))
    refused = {
        "model-malformed": by_genesis + 4 * (struct.pack("<BQ", 2, len(bomb)) + bomb)[:4000],
        "digest-mismatch": encode_step(LAYOUT, model(3), GENESIS, base_digest=digest_of(GENESIS)),
    }
    for code, body in refused.items():
        assert sent(server, model(2), body) == (422, f"/problems/{code}")
    of_nan = encode_step(LAYOUT, nan, GENESIS, base_digest=digest_of(GENESIS))
    assert sent(server, nan, of_nan) == (422, "/problems/model-not-finite")
    assert sent(server, model(2), honest[:-1]) == (422, "/problems/model-malformed")
    assert len(server.service.ledger) == 1
    assert sent(server, model(2), honest)[0] == 201


def test_what_a_peer_sends_is_unfolded_by_what_it_was_asked_for_by_and_by_nothing_else(server: Server) -> None:
    unfolding = Unfolding(server.service)
    coded = encode_step(LAYOUT, model(2), GENESIS, base_digest=digest_of(GENESIS))
    assert unfolding.whole(coded, (digest_of(GENESIS), GENESIS)) == model(2)
    assert unfolding.whole(coded, (digest_of(model(7)), model(7))) is None
    assert unfolding.whole(coded[:-1], (digest_of(GENESIS), GENESIS)) is None


def test_a_peers_model_is_asked_for_by_its_authors_newest_else_by_a_parents(server: Server) -> None:
    unfolding = Unfolding(server.service)
    mine = server.publish(parents=[server.ledger_id], model=model(2), secret="7" * 64)
    header = decode_header(bytes.fromhex(mine["header"]))
    assert unfolding.base(header) == (digest_of(model(2)), model(2))
    of_another = replace(header, author=author_of_secret("8" * 64))
    assert unfolding.base(of_another) == (digest_of(GENESIS), GENESIS)


class NoisyTrainer(TinyTrainer):
    """Begins and moves by noise, as real models do."""

    def initial_arrays(self) -> dict[str, NDArray[np.float32]]:
        return noise_of(1)

    def train(self, arrays: Arrays, *, epochs: int, hints: Hints | None = None) -> TrainingResult:
        result = super().train(arrays, epochs=epochs, hints=hints)
        noise = noise_of(2)
        moved = {name: array + np.float32(0.01) * noise[name] for name, array in result.arrays.items()}
        return TrainingResult(moved, result.num_examples, result.metrics)


def noise_of(seed: int) -> dict[str, NDArray[np.float32]]:
    rng = np.random.default_rng(seed)
    return {spec.name: rng.standard_normal(spec.shape, dtype=np.float32) for spec in WIDE.tensors}


def test_a_participant_sends_a_quarter_where_it_rounds_and_what_it_keeps_is_what_it_published(
    sqlite_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "LEAST_BYTES", 0)
    first = encode_flat(WIDE, np.concatenate([noise_of(1)[spec.name].ravel() for spec in WIDE.tensors]))
    settings = load_settings(data_dir=tmp_path / "server", database_url=sqlite_url)
    (tmp_path / "server").mkdir()
    prepare(sqlite_url, tmp_path / "server", genesis=make_genesis(layout=WIDE), first=first)
    sizes: dict[str, int] = {}
    with run_app(create_app(settings, key=ISSUER, clock_ms=lambda: NOW_MS), settings) as live:
        for coding in ("whole", "exact", "rounded"):
            with (
                ParticipantState(tmp_path / coding) as state,
                LedgerClient(live.url, key=state.key) as asking,
            ):
                participant = Participant(asking, NoisyTrainer(0.0, layout=WIDE), state, coding=coding)
                participant.step()
                report = participant.step()
                sizes[coding] = report.bytes_sent
                kept = state.newest_model()
                assert kept is not None
                assert asking.transaction(report.transaction).model.digest == digest_of(kept)
                start = asking.download(asking.transaction(report.transaction).start)
                is_round = np.array_equal(flat(WIDE, kept), round_step(WIDE, flat(WIDE, kept), flat(WIDE, start)))
                assert is_round == (coding == "rounded")
    whole = len(first)
    assert sizes["whole"] > whole
    assert sizes["exact"] < 0.88 * whole
    assert sizes["rounded"] < 0.27 * whole
