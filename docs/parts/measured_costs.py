"""What `dag-acfl capacity` reckons with, ``measured_costs.json``: from the committed results of benchmarks."""

import json
from collections.abc import Mapping
from statistics import mean, median
from typing import Any, Final

from docs.parts.kept import BENCHMARKS, ROOT
from ledger_server.admin.sizing import KEY_MODELS, MIN_NAMED, sketch_bytes
from ledger_server.settings import CacheSettings

FILE: Final = ROOT / "ledger_server" / "admin" / "measured_costs.json"
_SOURCES: Final = ("round_costs", "workers", "selection_crowd", "memory", "step_coding", "ledger_million")
_OF_A_ROUND: Final = (
    "model_bytes",
    "averaged",
    "cpu_ms",
    "lock_ms",
    "serving_cpu_ms",
    "receiving_singly_cpu_ms",
    "client_sent_beyond_model",
    "client_received_beyond_model",
    "peer_bytes_beyond_model",
    "header_bytes",
    "evidence_bytes",
)
_ON_POSTGRESQL: Final = ("model_bytes", "averaged", "cpu_ms", "database_cpu_ms")
_IN_FLIGHT: Final = 10
"""Models of 13 MB that ``benchmarks/memory.py`` has on their way."""
_LARGE_BYTES: Final = 4 * 3_260_266
"""Of the model in ``benchmarks/memory.py`` and ``step_coding.py``."""


def measured_costs() -> str:
    """The document's text."""
    results = {name: json.loads((BENCHMARKS / f"{name}.json").read_text("utf-8")) for name in _SOURCES}
    facts = {name: each["facts"] for name, each in results.items()}
    rounds = facts["round_costs"]
    workers = facts["workers"]["model"]["parameters"]
    document = {
        "about": "Written by `make docs` from benchmarks/results/ (docs/parts/measured_costs.py); do not edit.",
        "sources": {name: _source(each) for name, each in results.items()},
        "rounds": [
            {**{name: row[name] for name in _OF_A_ROUND}, "named": _named(row), "record_bytes": _record_bytes(row)}
            for row in rounds["SQLite, two servers"]
        ],
        "postgresql": [{name: row[name] for name in _ON_POSTGRESQL} for row in rounds["PostgreSQL, one server"]],
        "candidates": _candidates(facts["selection_crowd"], few=rounds["SQLite, two servers"][-1]["authors"]),
        "workers": {name: _short(1e3 * workers[f"{name[:-3]}_s"]) for name in ("follow_ms", "lock_ms")},
        "memory": _memory(facts["memory"], facts["selection_crowd"]),
        "start": {"cpu_s": _start(facts["ledger_million"])},
        "coding": {kind: _coding(facts["step_coding"], kind) for kind in ("exact", "rounded")},
    }
    return json.dumps(document, indent=1) + "\n"


def _source(result: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "command": result["command"],
        "date": result["date"],
        "commit": result["commit"],
        "cpu": result["machine"]["cpu"],
        "load_average": result["before"]["load_average"][0],
    }


def _named(row: Mapping[str, Any]) -> int:
    """Candidates that the evidence of such a round names."""
    return min(int(row["authors"]), max(2 * int(row["averaged"]), MIN_NAMED))


def _record_bytes(row: Mapping[str, Any]) -> int:
    """What stays on disk of an update when its model goes: header, evidence, rows and their indexes."""
    return round(row["disk_bytes_beyond_model"] - sketch_bytes(row["model_bytes"]))


def _candidates(crowd: Mapping[str, Any], *, few: int) -> list[dict[str, float]]:
    """What a selection among many costs beyond what rounds among few say; these are nearly nothing for as few."""
    found = {
        int(name.split()[0].replace(",", "")): each["selection_processor_p50_ms"]
        for name, each in crowd.items()
        if name.endswith(" candidates")
    }
    return [{"candidates": number, "cpu_ms": ms} for number, ms in sorted({few: 0.0, **found}.items())]


def _memory(busy: Mapping[str, Any], crowd: Mapping[str, Any]) -> dict[str, float]:
    idle = 1e6 * busy["idle, MB"]["server"]
    peak = 1e6 * busy["ten 13 MB models in flight, high-water mark, MB"]["server"]
    cached = CacheSettings().model_bytes
    many, most = crowd["10,000 candidates"]["resident_MB"], crowd["100,000 candidates"]["resident_MB"]
    return {
        "idle_bytes": idle,
        "author_bytes": round(1e6 * (most - many) / 90_000),
        "models_for_each_on_its_way": _short((peak - idle - cached) / _IN_FLIGHT / _LARGE_BYTES),
    }


def _start(ages: Mapping[str, Any]) -> float:
    old = ages["1,000,000 updates"]["later_starts"]
    return float(median(each["cpu_s"] for each in old))


def _coding(steps: Mapping[str, Any], kind: str) -> dict[str, float]:
    (shares,) = [each for name, each in steps.items() if name.startswith("share of bytes")]
    megabytes = _LARGE_BYTES / 1e6
    own, average = (steps[f"CPU ms, {kind}, by {base}"] for base in ("the author's next", "its average"))
    by_next, by_none = mean(shares[f"{kind}, by the author's next"]), mean(shares[f"{kind}, by none"])
    return {
        "upload": _short(mean(shares[f"{kind}, by its average"])),
        "peers": _short(by_next),
        "rest": _short(((KEY_MODELS - 1) * by_next + by_none) / KEY_MODELS),
        "upload_decode_ms": _short(average["decode"][-1] / megabytes),
        "encode_ms": _short(own["encode"][-1] / megabytes),
        "decode_ms": _short(own["decode"][-1] / megabytes),
    }


def _short(value: float) -> float:
    """To four digits, which is more than is known."""
    return float(f"{value:.4g}")
