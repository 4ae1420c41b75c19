"""Three servers that keep their models under one prefix of a bucket, against three with a folder each; and redirects.

The servers are the product's own command, on loopback; the bucket is moto's, in this process, which counts what it is
asked. Models are of 13 MB, published one after another on the first server.

* **Bytes** between servers for each update and server that receives it, and at rest; requests to the bucket; CPU of a
  server for each update that it receives, and of the first for each that it publishes.
* **CPU** of a server for each fetch of an update's model: from its memory, from the bucket through it, by a redirect.

    python benchmarks/bucket.py
"""

import http.client
import json
import logging
import os
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import harness
from gossip import Publisher, Server, free_ports, wait_until_equal
from our_server import COMMAND, write_model

UPDATES = 10
FETCHES = 40


class Bucket:
    """A bucket of moto's that counts: ``requests`` by method and kind of key, ``sent`` and ``received`` in bytes."""

    def __init__(self) -> None:
        self.requests: Counter[str] = Counter()
        self.sent = self.received = 0

    def __call__(self, app: Callable[..., Iterable[bytes]]) -> Callable[..., Iterator[bytes]]:
        def counted(environ: dict[str, Any], start: Callable[..., Any]) -> Iterator[bytes]:
            self.requests[f"{environ['REQUEST_METHOD']}{' of parts' * ('uploadId' in environ['QUERY_STRING'])}"] += 1
            self.received += int(environ.get("CONTENT_LENGTH") or 0)
            for piece in app(environ, start):
                self.sent += len(piece)
                yield piece

        return counted


@contextmanager
def bucket() -> Iterator[tuple[Bucket, dict[str, str]]]:
    """The bucket, and the environment of servers whose models go there."""
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    warnings.simplefilter("ignore")
    from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import make_server

    held = Bucket()
    server = make_server("127.0.0.1", 0, held(DomainDispatcherApplication(create_backend_app)), threaded=True)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    endpoint = f"http://127.0.0.1:{server.server_port}"
    try:
        urllib.request.urlopen(urllib.request.Request(f"{endpoint}/models", method="PUT"), timeout=10).close()
        yield (
            held,
            {
                "DAG_ACFL_BLOBS__STORE": "s3",
                "DAG_ACFL_BLOBS__S3_URL": "s3://models/shared",
                "DAG_ACFL_BLOBS__S3_ENDPOINT": endpoint,
                "DAG_ACFL_BLOBS__S3_ALLOW_HTTP": "true",
                "DAG_ACFL_BLOBS__REDIRECT": "true",
                "AWS_ACCESS_KEY_ID": "key",
                "AWS_SECRET_ACCESS_KEY": "secret",
                "AWS_REGION": "us-east-1",
            },
        )
    finally:
        server.shutdown()
        thread.join()


@contextmanager
def joined(folder: Path, environment: dict[str, str], *, count: int = 3) -> Iterator[list[Server]]:
    """Servers of one new ledger, each but the first by ``ledger join``."""

    def run(*arguments: object) -> str:
        command = [*COMMAND, *map(str, arguments)]
        return subprocess.run(
            command, check=True, stdout=subprocess.PIPE, text=True, cwd=folder, env=environment
        ).stdout.strip()

    first, *others = [Server(folder / f"server-{number}", port) for number, port in enumerate(free_ports(count))]
    write_model(harness.LARGE_MODEL_VALUES, folder / "model.safetensors")
    run("ledger", "init", "--name", "benchmark", "--model", folder / "model.safetensors", "--data-dir", first.folder)
    entries = [
        run("keys", "peer", f"http://127.0.0.1:{each.port}", "--data-dir", each.folder) for each in (first, *others)
    ]
    run("members", "add", *entries, "--data-dir", first.folder)
    with ExitStack() as stack:
        stack.callback(first.stop)
        first.start(" ".join(entries), environment)
        for each in others:
            run("ledger", "join", f"http://127.0.0.1:{first.port}", "--data-dir", each.folder)
        for each in others:
            stack.callback(each.stop)
            each.start(" ".join(entries), environment)
        yield [first, *others]


def published(servers: list[Server], *, at_rest: Callable[[], int], held: Bucket | None) -> dict[str, Any]:
    """What ``UPDATES`` updates cost that the first server publishes and the others receive."""
    publisher = Publisher(servers[0].port)
    publisher.publish()
    wait_until_equal(servers, every_s=0.25)
    before = sum(each.gossip_bytes() for each in servers), at_rest(), [each.cpu_s() for each in servers]
    if held is not None:
        held.requests.clear()
        held.sent = held.received = 0
    for _ in range(UPDATES):
        publisher.publish()
    wait_until_equal(servers, every_s=0.25)
    receivers = len(servers) - 1
    publishing_s, *receiving_s = (each.cpu_s() - old for each, old in zip(servers, before[2], strict=True))
    facts: dict[str, Any] = {
        "bytes_between_servers": (sum(each.gossip_bytes() for each in servers) - before[0]) // UPDATES // receivers,
        "bytes_at_rest": (at_rest() - before[1]) // UPDATES,
        "cpu_ms_publishing": round(publishing_s / UPDATES * 1e3, 1),
        "cpu_ms_receiving": [round(each / UPDATES * 1e3, 1) for each in receiving_s],
    }
    if held is not None:
        facts["bucket_requests"] = {name: count / UPDATES for name, count in sorted(held.requests.items())}
        facts |= {"bucket_sent_bytes": held.sent // UPDATES, "bucket_received_bytes": held.received // UPDATES}
    return facts


def fetched(server: Server, path: str, size: int, *, follow: bool = False) -> float:
    """CPU ms of a server for a fetch of a model, which comes whole."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    before_s = -1.0
    for number in range(-3, FETCHES):
        if number == 0:
            before_s = server.cpu_s()
        connection.request("GET", path)
        answer = connection.getresponse()
        data = answer.read()
        if follow:
            with urllib.request.urlopen(answer.headers["location"], timeout=60) as found:
                data = found.read()
        if len(data) != size:
            raise RuntimeError(f"{answer.status}, {len(data)} of {size} bytes")
    connection.close()
    return round((server.cpu_s() - before_s) / FETCHES * 1e3, 2)


def main() -> None:
    parser = harness.arguments(__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()), help="where databases go")
    options = parser.parse_args()
    result = harness.Result("bucket", "Several servers on one prefix of a bucket, and redirects to it", options.date)
    bare = {name: value for name, value in os.environ.items() if not name.startswith(("DAG_ACFL_", "AWS_"))}
    bare |= {"PYTHONPATH": str(harness.ROOT)}
    with (
        tempfile.TemporaryDirectory(dir=options.folder) as folder,
        joined(Path(folder), {**bare, "DAG_ACFL_BLOBS__STORE": "directory"}) as servers,
    ):

        def in_folders() -> int:
            models = [path for each in servers for path in (each.folder / "models").glob("??/[0-9a-f]*")]
            return sum(path.stat().st_size for path in models)

        apart = published(servers, at_rest=in_folders, held=None)
    with tempfile.TemporaryDirectory(dir=options.folder) as folder, bucket() as (held, there):
        environment = {**bare, **there, "DAG_ACFL_BLOBS__S3_SHARED": "true"}

        def in_bucket() -> int:
            from moto.s3.models import s3_backends

            (backend,) = (each["aws"] for each in s3_backends.values())
            return sum(key.size for name, key in backend.buckets["models"].keys.items() if len(Path(name).name) == 64)

        with joined(Path(folder), environment) as servers:
            together = published(servers, at_rest=in_bucket, held=held)
            with urllib.request.urlopen(f"http://127.0.0.1:{servers[0].port}/v1/genesis", timeout=10) as answer:
                model = json.load(answer)["model"]
            path, size = model["href"], model["size"]
            fetch = {"from memory": fetched(servers[0], path, size)}
            fetch["by redirect"] = fetched(servers[0], f"{path}?redirect=true", size, follow=True)
            peers = ""
            servers[0].stop()
            servers[0].start(peers, {**environment, "DAG_ACFL_CACHE__MODEL_BYTES": "0"})
            time.sleep(2)
            fetch["from the bucket, through the server"] = fetched(servers[0], path, size)
    result.facts |= {"a folder each": apart, "one prefix": together, "cpu_ms_of_a_fetch": fetch, "bytes": size}
    share = together["bytes_between_servers"] / apart["bytes_between_servers"]
    result.ratios += [
        harness.Ratio("bytes between servers", share, 0.01, "at most", "one prefix / a folder each"),
        harness.Ratio(
            "bytes at rest", together["bytes_at_rest"] / apart["bytes_at_rest"], 0.34, "at most", "the same, 3 servers"
        ),
        harness.Ratio(
            "CPU of a fetch",
            fetch["by redirect"] / fetch["from memory"],
            0.5,
            "at most",
            "by redirect / from the server's memory",
        ),
    ]
    print(json.dumps(result.facts, indent=2), file=sys.stderr)
    print(result.write())


if __name__ == "__main__":
    main()
