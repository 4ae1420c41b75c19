"""What an update leaves in a database beside its model, before its evidence is archived and after.

A ledger of 10,000 updates by 128 authors whose averages have up to 64 models, in SQLite and in a PostgreSQL of its own.
First some are made as a server makes them, by selections of the open profile among models of 0.1 MB, to see how large
evidence and headers are; then the ledger is filled with updates of that shape, whose models were pruned, by the store's
own appends. All are archived (``ledger_server.admin.archive``, its proof included). Sizes are those of the database's
tables with their indexes and free space (PostgreSQL) or pages (SQLite), before and after, and compacted.

    python benchmarks/archive.py
"""

import secrets
import statistics
import tempfile
import time
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import harness
import numpy as np
from built_ledger import CACHE_BYTES, KEY, STARTED_MS, Models, now_ms
from sqlalchemy import text

from fl_core.dag.building import build_update
from fl_core.dag.genesis import Genesis, compare_layers
from fl_core.dag.profiles import PROFILES
from fl_core.models import encode_flat
from fl_core.node import Publication
from fl_core.selection.evidence import Evidence, parse_evidence
from fl_core.selection.protocol import RankedCandidate
from fl_core.types import AuthorId, Digest, TxId, digest_of
from ledger_server.admin.archive import archive
from ledger_server.founding import create_ledger
from ledger_server.publishing import LedgerService
from ledger_server.store import open_store, schema
from ledger_server.store.appending import Entry
from ledger_server.store.journal import Store
from ledger_server.store.stored import StoredTransaction
from tests.postgres import own_server

AUTHORS, CLUSTERS, VALUES = 128, 2, 25_000
REAL, UPDATES = 100, 10_000
TOGETHER = 100
TABLES = ("transactions", "attachments", "models")
TARGET = 0.2


def found(store: Store, models: Models) -> None:
    rules: dict[str, Any] = {**PROFILES["open"], "comparison": compare_layers(["weight"])}
    genesis = Genesis(name="benchmark", layout=models.layout, **rules)
    create_ledger(store, genesis, encode_flat(models.layout, models.genesis), key=KEY, now_ms=STARTED_MS)


def as_a_server(store: Store, models: Models) -> tuple[dict[str, Any], Evidence]:
    """Publish by selections as clients do; sizes, and the evidence of the last."""
    service = LedgerService(store, key=KEY, now_ms=now_ms, cache_bytes=CACHE_BYTES)
    rng = np.random.default_rng(3)
    names = [secrets.token_hex(32) for _ in range(AUTHORS)]

    def publish(author: int, **by: Any) -> TxId:
        noise = np.float32(0.05) * rng.standard_normal(VALUES, dtype=np.float32)
        publication = Publication(num_examples=100, secret=names[author], **by)
        return service.publish(publication, encode_flat(models.layout, models.clients[author] + noise)).transaction

    newest = [publish(author, parents=(service.id,)) for author in range(AUTHORS)]
    for author in rng.integers(AUTHORS, size=REAL):
        selection, _ = service.selections.select_for(newest[author])
        newest[author] = publish(author, selection=selection.id)
    service.close()
    stored = store.page(after=AUTHORS, limit=REAL)
    evidence = [store.attachment(each.transaction.header.attachment_digest) or b"" for each in stored]
    parsed = [parse_evidence(each) for each in evidence]
    return {
        "evidence_bytes": sizes(map(len, evidence)),
        "evidence_deflated_bytes": sizes(len(zlib.compress(each)) for each in evidence),
        "candidates": sizes(len(each.selection.candidates) for each in parsed),
        "header_bytes": sizes(len(each.transaction.header_bytes) for each in stored),
        "parents": sizes(len(each.transaction.header.parents) for each in stored),
        "figures_bytes": sizes(len(each.figures) for each in stored),
    }, parsed[-1]


def sizes(of: Any) -> dict[str, float]:
    values = list(of)
    return {"mean": round(statistics.fmean(values), 1), "least": min(values), "most": max(values)}


def fill(store: Store, shape: Evidence) -> None:
    """Append updates of that shape, whose models were pruned, each upon the newest of as many authors."""
    rng = np.random.default_rng(5)
    held = store.genesis()
    assert held is not None
    ledger, stored = held[0].id, store.page(after=0, limit=AUTHORS + REAL)
    newest: dict[AuthorId, TxId] = {each.transaction.header.author: each.transaction.id for each in stored}
    sequence = {each.transaction.header.author: each.transaction.header.sequence + 1 for each in stored}
    model_of = {each.transaction.id: each.transaction.header.model_digest for each in stored}
    figures = stored[-1].figures
    authors, count = sorted(newest), store.length()
    for start in range(0, UPDATES, TOGETHER):
        entries = []
        for number in range(start, start + TOGETHER):
            author = authors[number % AUTHORS]
            evidence = like(shape, author, newest, model_of, rng)
            encoded = evidence.encode()
            model = Digest(rng.bytes(32).hex())
            unsigned = build_update(
                ledger=ledger,
                author=author,
                sequence=sequence[author],
                created_at_ms=now_ms(),
                num_examples=100,
                start=evidence.aggregate,
                model_digest=model,
                model_size=evidence.aggregate_size,
                parents=evidence.selection.parents,
                evidence=digest_of(encoded),
            )
            sealed = unsigned.issue(KEY, author_signature=None, received_at_ms=now_ms())
            entries.append(Entry(StoredTransaction(count + number, sealed, figures, STARTED_MS), None, encoded))
            newest[author], model_of[sealed.id] = sealed.id, model
            sequence[author] += 1
        assert store.append_all(entries)


def like(
    shape: Evidence,
    author: AuthorId,
    newest: dict[AuthorId, TxId],
    model_of: dict[TxId, Digest],
    rng: np.random.Generator,
) -> Evidence:
    """Evidence of a selection of that shape by an author among the newest, with numbers and digests of its own."""
    own, selection = newest[author], shape.selection
    others = [each for each in newest if each != author]
    chosen = [others[place] for place in rng.permutation(len(others))[: len(selection.candidates)]]
    candidates = tuple(
        RankedCandidate(newest[each], each, rng.random(), rng.random(), None, like.selected)
        for each, like in zip(chosen, selection.candidates, strict=True)
    )
    taken = [each.transaction for each in candidates if each.selected]
    parents = tuple(sorted({own, *taken}))
    return replace(
        shape,
        author=author,
        reference=own,
        reference_model=model_of[own],
        selection=replace(selection, parents=parents, candidates=candidates),
        weights=(1 / len(parents),) * len(parents),
        aggregate=Digest(rng.bytes(32).hex()),
    )


def tables(store: Store) -> dict[str, int]:
    """Bytes of each table with its indexes, and of the whole."""
    with store.database.reading() as connection:
        if store.database.is_sqlite:
            query = "SELECT m.tbl_name, sum(s.pgsize) FROM dbstat s JOIN sqlite_master m ON m.name = s.name GROUP BY 1"
        else:
            query = "SELECT relname, pg_total_relation_size(oid) FROM pg_class WHERE relkind = 'r'"
        found = {name: nbytes for name, nbytes in connection.execute(text(query))}  # noqa: C416 -- rows are no pairs
    return {**{each: int(found[each]) for each in TABLES}, "database": store.storage_bytes()}


@contextmanager
def place(kind: str, folder: Path) -> Iterator[str]:
    if kind == "SQLite":
        yield f"sqlite:///{folder / 'ledger.sqlite3'}"
    else:
        with own_server() as server:
            yield server.url.render_as_string(hide_password=False)


def measured(kind: str, folder: Path, models: Models) -> dict[str, Any]:
    with place(kind, folder) as url:
        schema.upgrade(url)
        with open_store(url, data_dir=folder) as store:
            found(store, models)
            made, shape = as_a_server(store, models)
            fill(store, shape)
            store.database.compact()
            before, room = tables(store), store.length()
            began_s, cpu_s = time.perf_counter(), time.process_time()
            report = archive(store, folder / "past.dagacfl", before_ms=2**62, rest=lambda _: None)
            took_s, cpu_s = time.perf_counter() - began_s, time.process_time() - cpu_s
            after = tables(store)
            store.database.compact()
            compacted = tables(store)
            archive_bytes = (folder / "past.dagacfl").stat().st_size
    steps = {"before": before, "after": after, "compacted": compacted}
    per_update = {name: {each: round(at[each] / room, 1) for each in TABLES} for name, at in steps.items()}
    return {
        "an_update_of_a_server": made,
        "transactions": room,
        "archived": report.evidence,
        "archived_bytes": report.nbytes,
        "archive_bytes_per_update": round(archive_bytes / room, 1),
        "bytes_per_update": per_update,
        "database_bytes": {name: at["database"] for name, at in steps.items()},
        "archive_s": round(took_s, 2),
        "archive_cpu_s": round(cpu_s, 2),
    }


def main() -> None:
    parser = harness.arguments(__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()), help="where the databases go")
    options = parser.parse_args()
    result = harness.Result("archive", f"Bytes of an update beside its model, of {UPDATES:,} updates", options.date)
    models = Models.of(AUTHORS, clusters=CLUSTERS, dimensions=VALUES)
    for kind in ("SQLite", "PostgreSQL"):
        with tempfile.TemporaryDirectory(dir=options.folder) as held:
            figures = measured(kind, Path(held), models)
        result.facts[kind] = figures
        sums = {name: sum(each.values()) for name, each in figures["bytes_per_update"].items()}
        basis = "tables transactions, attachments and models with indexes, compacted / before"
        share = sums["compacted"] / sums["before"]
        result.ratios.append(harness.Ratio(f"{kind}: bytes an update leaves", share, TARGET, "at most", basis))
    print(result.write())


if __name__ == "__main__":
    main()
