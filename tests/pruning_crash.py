"""A pruning that ends in the middle, for a process of its own: see ``tests/integration/test_pruning.py``."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

from sqlalchemy import Connection, Engine

import ledger_server.pruning
from fl_core.types import Digest
from ledger_server.buckets import S3Address
from ledger_server.pruning import prune, snapshot_of
from ledger_server.store import database, open_store

KILLED = 9
"""How the process ends at the point."""


def prune_until(point: str, url: str, folder: Path, bucket: S3Address | None) -> int:
    """Prune three models at a time, and end at the point as a killed process does."""
    with open_store(url, data_dir=folder, s3=bucket) as store:
        begin, drop = database.writing, store._blobs.drop
        drops = 0

        @contextmanager
        def dying(engine: Engine, *, durable: bool = True, alone: bool = True) -> Iterator[Connection]:
            with begin(engine, durable=durable, alone=alone) as connection:
                yield connection
                if point == "inside the record" and durable:
                    os._exit(KILLED)
            if point == "after the record" and durable:
                os._exit(KILLED)

        def dying_drop(connection: Any, digest: Digest) -> None:
            nonlocal drops
            drop(connection, digest)
            drops += 1
            if point == "between two drops" and drops == 2:
                os._exit(KILLED)

        with (
            patch.object(ledger_server.pruning, "_BATCH_MODELS", 3),
            patch.object(database, "writing", dying),
            patch.object(store._blobs, "drop", dying_drop),
        ):
            prune(store, snapshot_of(store, keep_ms=0), now_ms=lambda: 1)
    return 0
