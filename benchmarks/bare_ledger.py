"""The least that a Python server must do for a round: read the three requests, and answer them.

A bare ASGI application under uvicorn (uvloop, httptools), without routing, checks, selection or averaging: it answers
``device_client.py`` with fixed bytes. With ``--store`` a publication is also hashed and inserted into SQLite (WAL,
synchronous=FULL) before it is acknowledged: the limit of ``publish.py``, ten clients at once.

    python benchmarks/bare_ledger.py --values 101770 --port 8900 --store
"""

import argparse
import asyncio
import hashlib
import json
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from our_server import STOP_TIMEOUT_S, Running, listening_port, write_model

Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]

MODEL_PATH = "/v1/models/fixed"
ANSWERS = {
    "/v1/selections": {"id": "fixed", "source": "average", "aggregate": {"href": MODEL_PATH}},
    "/v1/transactions": {"id": "fixed"},
}


@contextmanager
def running_bare_ledger(values: int, *, folder: Path, stores: bool) -> Iterator[Running]:
    """The bare server in a process of its own.

    Raises:
        RuntimeError: the server ended before it said where it listens.
    """
    command = [sys.executable, str(Path(__file__).resolve()), "--values", str(values), "--folder", str(folder)]
    process = subprocess.Popen([*command, *(["--store"] if stores else [])], stdout=subprocess.PIPE, text=True)
    try:
        yield Running(process, listening_port(process))
    finally:
        process.terminate()
        process.wait(STOP_TIMEOUT_S)
        if process.stdout is not None:
            process.stdout.close()


class BareLedger:
    """The application; ``store`` makes a publication durable, or does nothing."""

    def __init__(self, model: bytes, store: Callable[[bytes], None] | None) -> None:
        self.model, self.store = model, store
        self.answers = {path: json.dumps(each).encode() for path, each in ANSWERS.items()}
        self.answers["/v1/genesis"] = json.dumps({"model": {"size": len(model), "href": MODEL_PATH}}).encode()
        self.writer = ThreadPoolExecutor(1)

    async def __call__(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            raise RuntimeError("only HTTP is spoken here")
        body = bytearray()
        while True:
            message = await receive()
            body += message.get("body", b"")
            if not message.get("more_body"):
                break
        path = scope["path"]
        if path == "/v1/transactions" and self.store is not None:
            await asyncio.get_running_loop().run_in_executor(self.writer, self.store, bytes(body))
        answer = self.model if path == MODEL_PATH else self.answers[path]
        headers = [(b"content-length", str(len(answer)).encode()), (b"content-type", b"application/json")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": answer})


def durable_store(folder: Path) -> Callable[[bytes], None]:
    """SHA-256 and one insert per call, by one thread."""
    connection = sqlite3.connect(folder / "bare.sqlite", isolation_level=None, check_same_thread=False)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("CREATE TABLE blob (digest BLOB NOT NULL, data BLOB NOT NULL)")

    def store(data: bytes) -> None:
        connection.execute("INSERT INTO blob VALUES (?, ?)", (hashlib.sha256(data).digest(), data))

    return store


def main() -> None:
    import uvicorn

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--values", type=int, required=True, help="float32 values of the model")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--store", action="store_true", help="hash and insert what is published, durably")
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()), help="where the database goes")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as held:
        folder = Path(held)
        write_model(options.values, folder / "model.safetensors")
        app = BareLedger((folder / "model.safetensors").read_bytes(), durable_store(folder) if options.store else None)
        config = uvicorn.Config(
            app, port=options.port, log_level="warning", lifespan="off", http="httptools", loop="uvloop"
        )
        listening = config.bind_socket()
        listening.listen(128)
        print(f"serving on http://127.0.0.1:{listening.getsockname()[1]}", flush=True)
        uvicorn.Server(config).run(sockets=[listening])


if __name__ == "__main__":
    main()
