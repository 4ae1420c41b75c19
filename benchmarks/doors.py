"""What one address can do to others: their p95 while it holds connections, handshakes and bodies, or names unknowns.

The server is the product's own command with its defaults. The attacker is a process of its own on 127.0.0.2; what is
closed or refused it opens again about a second later. On 127.0.0.1, others publish (0.4 MB) and ask for a selection
over a kept connection, read the tips over a new one, and ask ``/healthz`` and ``/readyz`` as a supervisor does. Who is
told to come again for a selection comes when it was told, as the SDK does: what that takes counts. Each attack is held
against the same requests to the same server just before it.

* **Connections**: 1,000 that say nothing.
* **Handshakes**: the same, where the server speaks TLS.
* **Bodies**: 1,000 publications that stop after 1 KB.
* **Questions**: 1,000 selections that do so.
* **Unknown parents**: 8 clients that publish upon 64 updates, and ask for a selection by one, that nobody has: the
  server asks two peers.

    python benchmarks/doors.py
"""

import asyncio
import http.client
import json
import random
import secrets
import ssl
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import gossip
import harness
from device_client import multipart
from our_server import running_server

from fl_core.wire import v1

ATTACKER, HELD, ASKING, UNKNOWN = "127.0.0.2", 1_000, 8, 64
AGAIN_S = 1.0
STALLED = (
    b"POST /v1/transactions HTTP/1.1\r\nHost: localhost\r\nContent-Type: multipart/form-data; boundary=x\r\n"
    b"Content-Length: 400000\r\n\r\n"
    b'--x\r\nContent-Disposition: form-data; name="transaction"\r\nContent-Type: application/json\r\n\r\n'
) + b" " * 1000
ASKED = (
    b"POST /v1/selections HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/vnd.safetensors\r\n"
    b"Content-Length: 400000\r\n\r\n"
) + b" " * 1000
TARGET, LONGEST_S = 3.0, 60.0


def connection(
    port: int, trust: ssl.SSLContext | None = None, *, source: str = "127.0.0.1"
) -> http.client.HTTPConnection:
    if trust is not None:
        return http.client.HTTPSConnection("127.0.0.1", port, timeout=30, source_address=(source, 0), context=trust)
    return http.client.HTTPConnection("127.0.0.1", port, timeout=30, source_address=(source, 0))


def said(connected: http.client.HTTPConnection, method: str, path: str, *body: object) -> tuple[int, bytes]:
    connected.request(method, path, *body)  # type: ignore[arg-type]  # body and headers
    response = connected.getresponse()
    return response.status, response.read()


class Others:
    """One honest client, and a supervisor."""

    def __init__(self, port: int, trust: ssl.SSLContext | None = None) -> None:
        self.port, self.trust, self.secret = port, trust, secrets.token_hex(32)
        self.kept = connection(port, trust)
        genesis = json.loads(said(self.kept, "GET", v1.GENESIS)[1])
        self.newest = genesis["ledger"]
        self.model = bytearray(said(self.kept, "GET", genesis["model"]["href"])[1])

    def publish(self) -> bool:
        self.model[-8:] = secrets.token_bytes(3) + b"\x3f" + secrets.token_bytes(3) + b"\x3f"
        body, headers = multipart({"parents": [self.newest], "num_examples": 1, "secret": self.secret}, self.model)
        status, text = said(self.kept, "POST", v1.TRANSACTIONS, b"".join(body), headers)
        if status == http.client.CREATED:
            self.newest = json.loads(text)["id"]
        return status == http.client.CREATED

    def select(self) -> bool:
        asked = json.dumps({"transaction": self.newest}), {"content-type": "application/json"}
        until_s = time.monotonic() + LONGEST_S
        while True:
            self.kept.request("POST", v1.SELECTIONS, *asked)
            response = self.kept.getresponse()
            response.read()
            again_s = float(response.headers.get("retry-after", "nan"))
            if response.status != http.client.SERVICE_UNAVAILABLE or not time.monotonic() + again_s < until_s:
                return response.status in (200, 201)
            time.sleep(again_s)

    def fresh(self, path: str) -> bool:
        new = connection(self.port, self.trust)
        try:
            return said(new, "GET", path)[0] == http.client.OK
        finally:
            new.close()

    def watch(self, seconds: float, taken: dict[str, list[float]], failed: Counter[str]) -> None:
        """All of it in turn, for so long."""
        acts: dict[str, Callable[[], bool]] = {
            "publish": self.publish,
            "select": self.select,
            "tips, new connection": lambda: self.fresh(v1.TIPS),
            "/healthz": lambda: self.fresh("/healthz"),
            "/readyz": lambda: self.fresh("/readyz"),
        }
        until_s = time.monotonic() + seconds
        while time.monotonic() < until_s:
            for name, act in acts.items():
                start_s = time.perf_counter()
                try:
                    is_well = act()
                except (OSError, http.client.HTTPException):
                    is_well = False
                    self.kept = connection(self.port, self.trust)
                taken.setdefault(name, []).append(time.perf_counter() - start_s)
                failed[name] += not is_well
            time.sleep(0.005)


async def hold(port: int, counts: Counter[str], words: bytes) -> None:
    """Keep ``HELD`` connections that send ``words`` and stop."""

    async def one() -> None:
        while True:
            try:
                reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=(ATTACKER, 0))
                writer.write(words)
                counts["open"] += 1
                counts["most open"] = max(counts["most open"], counts["open"])
                started_s = time.monotonic()
                try:
                    while await reader.read(4096):
                        pass
                finally:
                    counts["open"] -= 1
                    writer.close()
                    counts["ended within a second" if time.monotonic() - started_s < AGAIN_S else "ended later"] += 1
            except OSError:
                counts["reset"] += 1
            await asyncio.sleep(AGAIN_S * random.uniform(0.5, 1.5))

    await asyncio.gather(*(one() for _ in range(HELD)))


def name_unknowns(port: int, counts: Counter[str]) -> None:
    """Publish upon what nobody has, and select by it, as fast as it is answered."""
    model = Others(port).model
    while True:
        connected = connection(port, source=ATTACKER)
        try:
            for _ in range(50):
                parents = sorted(secrets.token_hex(32) for _ in range(UNKNOWN))
                about = {"parents": parents, "num_examples": 1, "secret": secrets.token_hex(32)}
                body, headers = multipart(about, model)
                counts[f"publish {said(connected, 'POST', v1.TRANSACTIONS, b''.join(body), headers)[0]}"] += 1
                asked = json.dumps({"transaction": parents[0]}), {"content-type": "application/json"}
                counts[f"select {said(connected, 'POST', v1.SELECTIONS, *asked)[0]}"] += 1
        except (OSError, http.client.HTTPException):
            counts["reset"] += 1
        finally:
            connected.close()


def attack(kind: str, port: int) -> None:
    """Until the end of input; then say what came of it."""
    counts: Counter[str] = Counter()
    if kind == "unknown parents":
        workers = [threading.Thread(target=name_unknowns, args=(port, counts), daemon=True) for _ in range(ASKING)]
    else:
        words = {"bodies": STALLED, "questions": ASKED}.get(kind, b"")
        workers = [threading.Thread(target=lambda: asyncio.run(hold(port, counts, words)), daemon=True)]
    for worker in workers:
        worker.start()
    sys.stdin.read()
    print(json.dumps(counts), flush=True)


@contextmanager
def attacked(kind: str, port: int) -> Iterator[Counter[str]]:
    """While an attack goes on; its counts are there afterwards."""
    command = [sys.executable, __file__, "--attack", kind, "--port", str(port)]
    counts: Counter[str] = Counter()
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        time.sleep(2.0)  # it has begun
        try:
            yield counts
        finally:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.close()
            counts.update(json.loads(process.stdout.readline()))
            process.kill()


def measure(
    kind: str, port: int, *, seconds: float, repeats: int, result: harness.Result, trust: ssl.SSLContext | None = None
) -> None:
    quiet: dict[str, list[float]] = {}
    loud: dict[str, list[float]] = {}
    failed: dict[str, Counter[str]] = {"undisturbed": Counter(), "under attack": Counter()}
    worst: dict[str, float] = {}
    others, attacker = Others(port, trust), []
    others.watch(1.0, {}, Counter())
    for _ in range(repeats):
        now: dict[str, list[float]] = {}
        before: dict[str, list[float]] = {}
        others.watch(seconds, before, failed["undisturbed"])
        with attacked(kind, port) as counts:
            others.watch(seconds, now, failed["under attack"])
        attacker.append(dict(counts))
        for name, all_s in now.items():
            quiet.setdefault(name, []).extend(before[name])
            loud.setdefault(name, []).extend(all_s)
            worst[name] = max(worst.get(name, 0.0), p95(all_s) / p95(before[name]))
        time.sleep(11.0)  # what was held has ended
    for name, all_s in loud.items():
        basis = f"p95 {p95(all_s) * 1e3:.1f} ms against {p95(quiet[name]) * 1e3:.1f} ms undisturbed, n = {len(all_s)}"
        result.ratios.append(harness.Ratio(f"{kind}: {name}", p95(all_s) / p95(quiet[name]), TARGET, "at most", basis))
    result.facts[kind] = {
        "others' failures": {name: dict(+counts) for name, counts in failed.items()},
        "worst repetition": {name: round(ratio, 2) for name, ratio in worst.items()},
        "attacker": attacker,
    }


def p95(all_s: list[float]) -> float:
    return sorted(all_s)[int(0.95 * len(all_s))]


def main() -> None:
    parser = harness.arguments(__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()), help="where databases go")
    parser.add_argument("--seconds", type=float, default=12.0, help="of each watch; a deadline is 10 s")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--attack", help="be the attacker of this kind, and nothing else")
    parser.add_argument("--port", type=int, help="whom to attack")
    options = parser.parse_args()
    if options.attack:
        attack(options.attack, options.port)
        return
    result = harness.Result("doors", "Others' requests while one address attacks", options.date)
    how = {"seconds": options.seconds, "repeats": options.repeats, "result": result}
    with gossip.servers(harness.SMALL_MODEL_VALUES, count=3, folder=options.folder) as (running, _, _):
        for kind in ("connections", "bodies", "questions", "unknown parents"):
            measure(kind, running[0].port, **how)
    with tempfile.TemporaryDirectory(dir=options.folder) as held:
        key, certificate = f"{held}/key.pem", f"{held}/certificate.pem"
        make = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", key, "-out", certificate]
        named = ["-subj", "/CN=ledger", "-addext", "subjectAltName=IP:127.0.0.1"]
        subprocess.run([*make, *named], check=True, capture_output=True)
        Path(key).chmod(0o600)
        tls = {"DAG_ACFL_TLS__CERTIFICATE": certificate, "DAG_ACFL_TLS__KEY": key}
        trust = ssl.create_default_context(cafile=certificate)
        with running_server(harness.SMALL_MODEL_VALUES, folder=options.folder, environment=tls) as one:
            measure("handshakes", one.port, trust=trust, **how)
    print(result.write())


if __name__ == "__main__":
    main()
