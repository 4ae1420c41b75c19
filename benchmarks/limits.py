"""Physical limits that the other benchmarks are held against, each measurable in the same run.

Every limit is a callable, or a context manager that gives one, so that ``harness.interleave`` can time it in
turn with the thing that it bounds. None of them imports the product. Run alone, it measures all of them and
writes ``benchmarks/results/limits.json``.

    python benchmarks/limits.py --folder /tmp
"""

import hashlib
import http.client
import itertools
import queue
import socket
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import harness
import numpy as np

READ_BYTES = 1 << 29
"""Half a gibibyte: far more than any cache, read in a few hundredths of a second."""
READ_BLOCK = 1 << 16
"""Values reduced at once: the reduction's own state stays in registers, and threads stay apart."""
STREAM_SLICE_BYTES = 1 << 18


@contextmanager
def dram_read(*, threads: int, size_bytes: int = READ_BYTES) -> Iterator[Callable[[], object]]:
    """Read ``size_bytes`` of memory once, by ``threads`` threads, each its own half.

    An integer maximum is the cheapest reduction that NumPy vectorises: memory, not arithmetic, bounds it.
    """
    data = np.ones(size_bytes // 4, dtype=np.int32)
    parts = np.array_split(data, threads)
    with ThreadPoolExecutor(threads) as pool:
        yield lambda: [int(each) for each in pool.map(np.maximum.reduce, parts)]


def memcpy(size_bytes: int) -> Callable[[], object]:
    """Copy ``size_bytes`` between two buffers whose pages exist already."""
    source, target = np.ones(size_bytes, dtype=np.uint8), np.zeros(size_bytes, dtype=np.uint8)
    return lambda: np.copyto(target, source)


def sha256(size_bytes: int) -> Callable[[], object]:
    data = np.random.default_rng(1).bytes(size_bytes)
    return lambda: hashlib.sha256(data).digest()


@contextmanager
def sqlite_insert(folder: Path, size_bytes: int, *, page_size: int | None = None) -> Iterator[Callable[[], object]]:
    """One durable insert of one blob: a new file, WAL, synchronous=FULL, SQLite's own page size unless told.

    Each call inserts different bytes, so nothing is stored twice; the file grows as a ledger's does, and the
    checkpoints that SQLite makes by itself are in the time.
    """
    blob = bytearray(np.random.default_rng(2).bytes(size_bytes))
    count = 0
    with (
        tempfile.TemporaryDirectory(dir=folder) as held,
        closing(sqlite3.connect(Path(held) / "limit.sqlite", isolation_level=None)) as connection,
    ):
        if page_size is not None:
            connection.execute(f"PRAGMA page_size = {page_size}")
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("CREATE TABLE blob (id INTEGER PRIMARY KEY, data BLOB NOT NULL)")

        def insert() -> None:
            nonlocal count
            count += 1
            blob[:8] = count.to_bytes(8, "big")
            connection.execute("INSERT INTO blob (data) VALUES (?)", (blob,))

        yield insert


@contextmanager
def grouped_inserts(folder: Path, size_bytes: int, *, threads: int) -> Iterator[Callable[[int], object]]:
    """Called with a number, ``threads`` threads hash and durably insert so many blobs each, and all wait for all.

    A writer commits together what waits while it wrote: a new file, WAL, synchronous=FULL, SQLite's own page size.
    """
    blobs = [bytearray(np.random.default_rng(each).bytes(size_bytes)) for each in range(threads)]
    counts = itertools.count()
    waiting: queue.SimpleQueue[tuple[bytearray, Future[None]]] = queue.SimpleQueue()
    with (
        tempfile.TemporaryDirectory(dir=folder) as held,
        closing(
            sqlite3.connect(Path(held) / "limit.sqlite", isolation_level=None, check_same_thread=False)
        ) as connection,
        ThreadPoolExecutor(threads + 1) as pool,
    ):
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("CREATE TABLE blob (id INTEGER PRIMARY KEY, data BLOB NOT NULL)")

        def write(total: int) -> None:
            while total:
                batch = [waiting.get()]
                while not waiting.empty():
                    batch.append(waiting.get())
                connection.execute("BEGIN IMMEDIATE")
                for blob, _ in batch:
                    connection.execute("INSERT INTO blob (data) VALUES (?)", (blob,))
                connection.execute("COMMIT")
                for _, written in batch:
                    written.set_result(None)
                total -= len(batch)

        def publish(blob: bytearray, each: int) -> None:
            for _ in range(each):
                blob[:8] = next(counts).to_bytes(8, "big")
                hashlib.sha256(blob).digest()
                written: Future[None] = Future()
                waiting.put((blob, written))
                written.result()

        def run(each: int) -> None:
            calls = [pool.submit(write, threads * each), *(pool.submit(publish, blob, each) for blob in blobs)]
            for call in calls:
                call.result()

        yield run


@contextmanager
def bare_stream(size_bytes: int) -> Iterator[Callable[[], object]]:
    """Fetch ``size_bytes`` from a bare uvicorn route in a process of its own, over one kept connection."""
    command = [sys.executable, str(Path(__file__).resolve()), "--serve-bytes", str(size_bytes)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            port = int(server.stdout.readline())
            with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=30)) as connection:
                yield fetcher(connection, "/", size_bytes)
        finally:
            server.terminate()


def fetcher(connection: http.client.HTTPConnection, path: str, size_bytes: int) -> Callable[[], object]:
    """GET ``path`` into one buffer that is used again: the same client for a limit and for the product."""
    view = memoryview(bytearray(size_bytes))

    def fetch() -> None:
        connection.request("GET", path)
        response = connection.getresponse()
        got = 0
        while got < size_bytes and (count := response.readinto(view[got:])):
            got += count
        if response.status != http.client.OK or got != size_bytes or response.read(1):
            raise RuntimeError(f"GET {path} gave status {response.status} and {got} of {size_bytes} bytes")

    return fetch


def matrix_vector(
    rows: int = 1_000, columns: int = 20_000, *, dtype: type[np.float32 | np.float64] = np.float32
) -> Callable[[], object]:
    """One product of a ``rows`` x ``columns`` matrix with a vector, one thread."""
    rng = np.random.default_rng(3)
    matrix = rng.standard_normal((rows, columns), dtype=dtype)
    vector = rng.standard_normal(columns, dtype=dtype)
    return lambda: matrix @ vector


def serve_bytes(size_bytes: int) -> None:
    """Stream the same bytes to every request; the port is the first line on stdout."""
    import uvicorn

    body = memoryview(np.random.default_rng(4).bytes(size_bytes))
    start = {"type": "http.response.start", "status": 200}
    headers = [(b"content-length", str(size_bytes).encode()), (b"content-type", b"application/octet-stream")]

    async def app(
        scope: dict[str, Any],
        _receive: Callable[[], Awaitable[dict[str, Any]]],
        send: Callable[[dict[str, Any]], Awaitable[None]],
    ) -> None:
        if scope["type"] != "http":
            raise RuntimeError("only HTTP is spoken here")
        await send({**start, "headers": headers})
        for low in range(0, size_bytes, STREAM_SLICE_BYTES):
            part = body[low : low + STREAM_SLICE_BYTES]
            await send({"type": "http.response.body", "body": part, "more_body": low + len(part) < size_bytes})

    with socket.create_server(("127.0.0.1", 0)) as listener:
        print(listener.getsockname()[1], flush=True)
        config = uvicorn.Config(app, lifespan="off", log_level="warning", access_log=False)
        uvicorn.Server(config).run(sockets=[listener])  # not asyncio.run: its loop would leave Nagle's delay on


def main() -> None:
    parser = harness.arguments("Measure the physical limits of this machine.")
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()), help="where the database goes")
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--serve-bytes", type=int, help="be the bare server for this many bytes, and nothing else")
    options = parser.parse_args()
    if options.serve_bytes:
        serve_bytes(options.serve_bytes)
        return
    small, large = harness.SMALL_MODEL_VALUES * 4, harness.LARGE_MODEL_VALUES * 4
    result = harness.Result("limits", "Physical limits of this machine", options.date)
    with (
        dram_read(threads=1) as read_1,
        dram_read(threads=2) as read_2,
        sqlite_insert(options.folder, small) as insert_small,
        sqlite_insert(options.folder, large) as insert_large,
        sqlite_insert(options.folder, large, page_size=65_536) as insert_large_pages,
        bare_stream(large) as stream,
    ):
        work = {
            "read memory, 512 MiB, 1 thread": read_1,
            "read memory, 512 MiB, 2 threads": read_2,
            "memcpy 13 MB": memcpy(large),
            "SHA-256 0.4 MB": sha256(small),
            "SHA-256 13 MB": sha256(large),
            "SQLite insert 0.4 MB": insert_small,
            "SQLite insert 13 MB": insert_large,
            "SQLite insert 13 MB, 64 KiB pages": insert_large_pages,
            "bare uvicorn GET 13 MB": stream,
            "matrix-vector 1000 x 20000": matrix_vector(),
        }
        result.timings = harness.interleave(work, repeats=options.repeats, warmup=2)
    for threads in (1, 2):
        name = f"read memory, 512 MiB, {threads} thread{'s' * (threads > 1)}"
        result.facts[f"read_gb_per_s_{threads}"] = round(READ_BYTES / result.timings[name].min_s / 1e9, 1)
    result.facts["disk_under_folder"] = harness.disk(options.folder)
    print(result.write())


if __name__ == "__main__":
    main()
