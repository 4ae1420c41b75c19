"""An archiving that ends in the middle, for a process of its own: see ``tests/integration/test_archive.py``."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

from sqlalchemy import Connection, Engine

from ledger_server.admin import archive as archiving
from ledger_server.store import database, open_store

KILLED = 9
"""How the process ends at the point."""


def archive_until(point: str, url: str, folder: Path, file: Path, before_ms: int) -> int:
    """Archive two selections at a time, and end at the point as a killed process does."""
    with open_store(url, data_dir=folder) as store:
        begin, write = database.writing, archiving.write_bundle
        written = 0

        def dying_write(*given: Any, **named: Any) -> int:
            if point == "before the file":
                os._exit(KILLED)
            count = write(*given, **named)
            if point == "after the file":
                os._exit(KILLED)
            return count

        @contextmanager
        def dying(engine: Engine, *, durable: bool = True, alone: bool = True) -> Iterator[Connection]:
            nonlocal written
            with begin(engine, durable=durable, alone=alone) as connection:
                yield connection
                if point == "inside a batch":
                    os._exit(KILLED)
            written += 1
            if point == "between two batches" and written == 2:
                os._exit(KILLED)

        with (
            patch.object(archiving, "_BATCH", 2),
            patch.object(archiving, "write_bundle", dying_write),
            patch.object(database, "writing", dying),
        ):
            archiving.archive(store, file, before_ms=before_ms)
    return 0
