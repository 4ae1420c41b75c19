"""The console in a real Chromium on ledgers of 100,000 and 1,000,000 updates, and what open pages cost others.

Served by the product's own command with its defaults, but for quotas; Chromium starts with an empty cache. Five parts,
which ``--only`` picks from:

* ``paint``: from the navigation until the graph of the newest 300 of 100,000 updates is on the screen, and until all
  of them are, as a density; bytes that came by then, and when all had come. Beside them, the page's files alone (an
  address of which the page says that there is no such view).
* ``live``: 50 publications a second for a minute: from the acknowledgement until the update stands in the page.
* ``heap``: the same for ten minutes: what the page's heap holds after a collection, every minute. The page holds as
  many updates as it ever does when this begins.
* ``routes``: each view route at random places of a ledger of 1,000,000 updates, over one connection, in turn with
  ``/healthz``; the server's memory before and after.
* ``pages``: p95 of ten publications a second of 0.1 MB while 50 pages are open (``open_pages.py``) against the same
  with none, by turns. Those ask for what a page in Chromium asks for, which is checked.

Both large ledgers have 1,000 authors; they are made once where ``--folder`` names a folder (of a million updates a
quarter of an hour and 2 GB). Each part writes a file, ``results/console_paint.json`` and so on.

    python benchmarks/console.py --folder /var/tmp/ledgers
    python benchmarks/console.py --only paint live
"""

import http.client
import json
import os
import random
import secrets
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import urlsplit

import harness
from built_ledger import Models, crown, grow, new_ledger
from device_client import Device, connected, multipart
from our_server import COMMAND, STOP_TIMEOUT_S, TENTH_MODEL_VALUES, cpu_s, listening_port, memory_of, running_server

if TYPE_CHECKING:
    from playwright.sync_api import Browser, CDPSession, Page

PYTHON = harness.ROOT / ".venv-console" / "bin" / "python"
PARTS = ("paint", "live", "heap", "routes", "pages")
AUTHORS, VALUES = 1_000, 100
LARGE, LARGEST = 100_000, 1_000_000
NEWEST, HELD = 300, 20_000

PAINT_S, PAINT_BYTES, PAGE_BYTES = 1.5, 1_000_000, 150_000
ROUTE_S, FLAT, PIXEL_S, HEAP_GROWTH, OTHERS = 0.05, 1.1, 0.3, 1.1, 1.1
PER_S, LIVE_S, HEAP_MINUTES = 50, 60, 10
BATCHES = 4
PAGES, TURNS, TURN_S, RATE = 50, 5, 20.0, 10
NO_QUOTA = {"DAG_ACFL_QUOTA__AUTHOR_UPDATES": "0"}
CHROMIUM = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--disable-background-networking"]
CHROMIUM += ["--enable-precise-memory-info"]

SEEN = """(words) => {
  const look = () => {
    const canvas = document.querySelector("canvas");
    const said = document.querySelector("main p.quiet")?.textContent ?? "";
    if (canvas?.width && said.includes(words)) {
      const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
      let painted = 0;
      for (let place = 3; place < data.length; place += 4) painted += data[place] > 0;
      if (painted > 5000) return requestAnimationFrame(() => { window.seenAt = performance.now(); });
    }
    requestAnimationFrame(look);
  };
  requestAnimationFrame(look);
}"""
"""When the graph is on the screen: its words stand below it, it has dots, and a frame has gone by."""

WATCH = """() => {
  window.seen = [];
  const note = () => requestAnimationFrame(() => {
    const newest = Number(document.querySelector("tbody td")?.textContent ?? -1);
    if (newest > (window.seen.at(-1)?.[0] ?? -1)) window.seen.push([newest, Date.now()]);
  });
  const all = { subtree: true, childList: true, characterData: true };
  new MutationObserver(note).observe(document.querySelector("main"), all);
}"""
"""Which update stands first in the table below the graph, and since when."""


def in_its_environment() -> None:
    """Go on as a process of the environment that has Playwright, which is made once."""
    if not PYTHON.exists():
        print("making .venv-console (once)", file=sys.stderr)
        subprocess.run(["make", ".venv-console/.installed"], cwd=harness.ROOT, check=True)
    environment = {**os.environ, "PYTHONPATH": str(harness.ROOT)}
    os.execve(PYTHON, [str(PYTHON), *sys.argv], environment)


@contextmanager
def chromium() -> Iterator["Browser"]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(args=CHROMIUM, executable_path=shutil.which("chromium"))
        yield browser
        browser.close()


def ledger(folder: Path, size: int) -> Path:
    """The data folder of a ledger of so many updates, made if it is not there."""
    data = folder / f"console-{size}"
    if not (data / "made").exists():
        print(f"making a ledger of {size:,} updates", file=sys.stderr)
        models = Models.of(AUTHORS, clusters=10, dimensions=VALUES)
        file = new_ledger(data, models, selector="least-squares")
        crown(file, models, grow(file, authors=AUTHORS, generations=size // AUTHORS - 1, is_stating=True))
        (data / "made").touch()
    return data


@contextmanager
def served(data: Path) -> Iterator[tuple[int, int]]:
    """The product's own command on a data folder: its process and its port."""
    command = [*COMMAND, "serve", "--data-dir", str(data), "--port", "0", "--log-level", "error"]
    environment = {**os.environ, "PYTHONPATH": str(harness.ROOT), **NO_QUOTA}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=data, env=environment)
    try:
        yield process.pid, listening_port(process)
    finally:
        process.terminate()
        process.wait(STOP_TIMEOUT_S)
        if process.stdout is not None:
            process.stdout.close()


def p95(values: Sequence[float]) -> float:
    return sorted(values)[min(len(values) - 1, int(0.95 * len(values)))]


# -- first paint ------------------------------------------------------------------------------------


@contextmanager
def counted_page(browser: "Browser") -> Iterator[tuple["Page", list[float], list[str]]]:
    """A page with an empty cache, the bytes that it received so far, and the addresses that it asked."""
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    page, received, asked = context.new_page(), list[float](), list[str]()
    session = context.new_cdp_session(page)
    session.send("Network.enable")
    session.on("Network.dataReceived", lambda event: received.append(event["encodedDataLength"]))
    session.on("Network.responseReceived", lambda event: received.append(event["response"]["encodedDataLength"]))
    page.on("request", lambda request: asked.append(request.url))
    try:
        yield page, received, asked
    finally:
        context.close()


def first_paint(browser: "Browser", port: int, address: str, words: str) -> tuple[float, float, float]:
    """Seconds until it is on the screen; bytes by then, and when nothing more comes."""
    with counted_page(browser) as (page, received, _):
        page.add_init_script(f"({SEEN})({json.dumps(words)})")
        page.goto(f"http://127.0.0.1:{port}/ui/#/{address}")
        while (seen_ms := page.evaluate("window.seenAt ?? 0")) == 0:  # the page's policy forbids wait_for_function
            page.wait_for_timeout(5)
        by_then, at_s = sum(received), seen_ms / 1000
        page.wait_for_timeout(3_000)
        return at_s, by_then, sum(received)


def files_alone(browser: "Browser", port: int) -> float:
    """Seconds until the page's files are there and say that there is no such view: what no ledger can change."""
    with counted_page(browser) as (page, _, _):
        page.goto(f"http://127.0.0.1:{port}/ui/#/nowhere")
        page.get_by_text("There is no such view").wait_for()
        return float(page.evaluate("performance.now()")) / 1000


def paint(result: harness.Result, folder: Path, *, repeats: int = 9) -> None:
    from ledger_server.api.console import files

    with served(ledger(folder, LARGE)) as (_, port), chromium() as browser:
        kinds = {
            "newest 300 of 100,000": ("updates", f"{NEWEST} updates."),
            "100,000 as a density": (f"updates?span={LARGE + 1}", f"{LARGE:,} updates, in"),
        }
        cold = {name: first_paint(browser, port, *kind) for name, kind in kinds.items()}
        seen: dict[str, list[tuple[float, float, float]]] = {name: [] for name in kinds}
        alone: list[float] = []
        for _ in range(repeats):
            alone.append(files_alone(browser, port))
            for name, kind in kinds.items():
                seen[name].append(first_paint(browser, port, *kind))
    result.timings["the page's files alone"] = harness.Timing(tuple(alone))
    for name, each in seen.items():
        result.timings[f"first paint, {name}"] = harness.Timing(tuple(at_s for at_s, _, _ in each))
        slowest = max(at_s for at_s, _, _ in [*each, cold[name]])
        median = statistics.median(at_s for at_s, _, _ in each)
        result.facts[f"first paint, {name}"] = {
            "of a server that nobody asked before, s": cold[name][0],
            "over the files alone": median / statistics.median(alone),
            "bytes when all had come": max(received for _, _, received in each),
        }
        if name == "newest 300 of 100,000":
            basis = f"slowest of {repeats + 1}, each with an empty cache, the first of a server just started"
            result.ratios.append(harness.Ratio("explorer's first paint, s", slowest, PAINT_S, "at most", basis))
            received = max(received for _, _, received in [*each, cold[name]])
            basis = "by gzip, with heads, when nothing more came"
            result.ratios.append(harness.Ratio("bytes received", received, PAINT_BYTES, "at most", basis))
    whole = sum(len(file.packed) for file in files().values())
    result.ratios.append(harness.Ratio("whole page, gzip", whole, PAGE_BYTES, "at most", f"{len(files())} files"))


# -- live -------------------------------------------------------------------------------------------


class Publisher(threading.Thread):
    """One author after another publishes upon its own newest update, so many a second together.

    Attributes:
        told: Of each update its id, when it was acknowledged, seconds since 1970, and how long that took.
    """

    def __init__(self, port: int, per_s: float, *, authors: int) -> None:
        super().__init__(daemon=True)
        self.port, self.per_s = port, per_s
        self.told: list[tuple[str, float, float]] = []
        self.ending = threading.Event()
        self.secrets = [secrets.token_hex(32) for _ in range(authors)]
        self.newest: dict[str, str] = {}
        device = Device(port, 1)
        self.genesis: str = device.ask("GET", "/v1/genesis")["ledger"]
        self.model = device.model
        self.late = 0

    def run(self) -> None:
        connection, rng = connected(self.port), random.Random(5)
        due_s = time.perf_counter()
        while not self.ending.is_set():
            secret = self.secrets[len(self.told) % len(self.secrets)]
            self.model[-4:] = rng.randbytes(3) + b"\x3d"  # a small float32
            about = {"parents": [self.newest.get(secret, self.genesis)], "num_examples": 100, "secret": secret}
            body, headers = multipart({**about, "metrics": {"accuracy": rng.random()}}, self.model)
            began_s = time.perf_counter()
            connection.request("POST", "/v1/transactions", b"".join(body), headers)
            answer = connection.getresponse()
            text = answer.read()
            now_s = time.perf_counter()
            if answer.status != http.client.CREATED:
                raise RuntimeError(f"a publication: {answer.status} {text[:300]!r}")
            self.newest[secret] = json.loads(text)["id"]
            self.told.append((self.newest[secret], time.time(), now_s - began_s))
            due_s += 1 / self.per_s
            self.late += now_s > due_s
            if due_s > now_s:
                self.ending.wait(due_s - now_s)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.ending.set()
        self.join()


def asked_of(port: int, path: str) -> Any:
    connection = connected(port)
    connection.request("GET", path)
    answer = connection.getresponse()
    document = json.loads(answer.read())
    connection.close()
    return document


def arrivals_since(port: int, first: int) -> dict[str, int]:
    found: dict[str, int] = {}
    while True:
        page = asked_of(port, f"/v1/view/updates?first={first}&end={first + 500}")
        found.update(zip(page["ids"], page["arrivals"], strict=True))
        first += 500
        if first >= page["transactions"]:
            return found


def live(result: harness.Result, folder: Path) -> None:
    with (
        copied(folder) as data,
        served(data) as (_, port),
        chromium() as browser,
        counted_page(browser) as (page, _, _),
    ):
        page.goto(f"http://127.0.0.1:{port}/ui/#/updates")
        page.get_by_text(f"{NEWEST} updates.").wait_for()
        page.evaluate(WATCH)
        begin = asked_of(port, "/v1/view/updates?first=0&end=1")["transactions"]
        with Publisher(port, PER_S, authors=200) as publisher:
            page.wait_for_timeout(1000 * LIVE_S)
        page.wait_for_timeout(2000)
        seen = page.evaluate("window.seen")
        arrivals = arrivals_since(port, begin)
    waits, place = list[float](), 0
    for id_, at_s, _ in publisher.told:
        while place < len(seen) and seen[place][0] < arrivals[id_]:
            place += 1
        if place == len(seen):
            raise RuntimeError(f"update {id_} never appeared")
        waits.append(max(0.0, seen[place][1] / 1000 - at_s))
    result.timings["acknowledgement to pixel, 50 updates a second"] = harness.Timing(tuple(waits))
    result.facts["live"] = {
        "updates": len(waits),
        "per second": len(waits) / LIVE_S,
        "p50, s": statistics.median(waits),
        "max, s": max(waits),
        "published later than due": publisher.late,
    }
    basis = f"p95 of {len(waits)}, an event every 0.1 s at most included"
    result.ratios.append(harness.Ratio("event to pixel, s", p95(waits), PIXEL_S, "at most", basis))


def heap_bytes(session: "CDPSession") -> float:
    for _ in range(3):
        session.send("HeapProfiler.collectGarbage")
    return float(session.send("Runtime.getHeapUsage")["usedSize"])


def heap(result: harness.Result, folder: Path, *, minutes: int = HEAP_MINUTES) -> None:
    with (
        copied(folder) as data,
        served(data) as (_, port),
        chromium() as browser,
        counted_page(browser) as (page, _, _),
    ):
        session = page.context.new_cdp_session(page)
        page.goto(f"http://127.0.0.1:{port}/ui/#/updates")
        page.get_by_text(f"{NEWEST} updates.").wait_for()
        young = heap_bytes(session)
        for end in range(LARGE - HELD, LARGE + 1, 4_000):
            page.evaluate(f"location.hash = '#/updates?span=4000&end={end}'")
            page.get_by_text("4,000 updates.").wait_for()
            page.wait_for_timeout(1_000)
        page.evaluate("location.hash = '#/updates'")
        page.get_by_text(f"{NEWEST} updates.").wait_for()
        held = []
        with Publisher(port, PER_S, authors=200) as publisher:
            for _ in range(minutes + 1):
                page.wait_for_timeout(60_000)  # of the first, what it warms up is no growth
                held.append(heap_bytes(session))
    result.facts["heap"] = {
        "MB when the page was opened": young / 1e6,
        "MB each minute, as many updates held as ever are": [round(each / 1e6, 2) for each in held],
        "updates": len(publisher.told),
        "published later than due": publisher.late,
    }
    basis = f"after {minutes} minutes of 50 updates a second over before, as many updates held as ever are"
    result.ratios.append(harness.Ratio("heap", held[-1] / held[0], HEAP_GROWTH, "at most", basis))


@contextmanager
def copied(folder: Path) -> Iterator[Path]:
    """The ledger of 100,000 updates, to publish into."""
    with tempfile.TemporaryDirectory(dir=folder) as held:
        copy = Path(held) / "data"
        subprocess.run(["cp", "-r", str(ledger(folder, LARGE)), str(copy)], check=True)
        yield copy


# -- routes -----------------------------------------------------------------------------------------


def routes(result: harness.Result, folder: Path, *, repeats: int = 100) -> None:
    rng = random.Random(7)
    with served(ledger(folder, LARGEST)) as (pid, port):
        before = memory_of(pid, "VmRSS")
        began_s = time.perf_counter()
        connection = connected(port)

        def ask(path: str) -> Any:
            connection.request("GET", path, headers={"accept-encoding": "gzip"})
            answer = connection.getresponse()
            data = answer.read()
            if answer.status != http.client.OK:
                raise RuntimeError(f"{path}: {answer.status} {data[:200]!r}")
            return data

        while b"too-busy" in plain(port, "/v1/view/density"):
            time.sleep(0.2)
        read_s = time.perf_counter() - began_s
        sample = asked_of(port, "/v1/view/updates")
        authors, ids = sample["authors"][1:], sample["ids"]

        def part() -> str:
            first = rng.randrange(LARGEST // 2)
            return f"first={first}&end={first + rng.randrange(LARGEST // 2)}"

        def span(count: int) -> str:
            first = rng.randrange(LARGEST - count)
            return f"first={first}&end={first + count}"

        asks: dict[str, Callable[[], str]] = {
            "healthz": lambda: "/healthz",
            "300 updates": lambda: f"/v1/view/updates?{span(300)}",
            "500 updates, the most": lambda: f"/v1/view/updates?{span(500)}",
            "every n-th of a long part": lambda: f"/v1/view/updates?{part()}",
            "an author's": lambda: f"/v1/view/updates?author={rng.choice(authors)}&end={rng.randrange(1000, LARGEST)}",
            "tips": lambda: f"/v1/view/updates?tips=true&first={rng.randrange(LARGEST)}",
            "density of clients": lambda: f"/v1/view/density?{part()}",
            "density of all by time": lambda: f"/v1/view/density?over=time&by=server&first={rng.randrange(1000)}",
            "an author's density": lambda: f"/v1/view/density?author={rng.choice(authors)}&first={rng.randrange(1000)}",
            "beginning of an id": lambda: f"/v1/view/search?text={rng.getrandbits(20):05x}",
            "an update": lambda: f"/v1/view/updates/{rng.choice(ids)}",
        }
        work = {name: partial(lambda make: ask(make()), make) for name, make in asks.items()}
        held = []
        for _ in range(BATCHES):
            timings = harness.interleave(work, repeats=repeats, warmup=0)
            held.append(memory_of(pid, "VmRSS"))
        spent = {}
        for name, call in work.items():
            before_s = cpu_s(pid)
            harness.measure(call, repeats=100, warmup=0)
            spent[name] = (cpu_s(pid) - before_s) / 100
        connection.close()
    result.timings.update({f"at 1,000,000: {name}": timing for name, timing in timings.items()})
    slow = {name: p95(timing.all_s) for name, timing in timings.items()}
    result.facts["routes"] = {
        "p95, ms": {name: round(1000 * each, 1) for name, each in slow.items()},
        "reading the journal for the first question, s": read_s,
        "server's CPU, ms": {name: round(1000 * each, 1) for name, each in spent.items()},
        f"server's memory before, and after each {len(asks) * repeats} questions, MB": [
            round(each / 1e6) for each in (before, *held)
        ],
    }
    basis = f"VmRSS after {len(asks) * repeats * BATCHES} questions over after half of them"
    result.ratios.append(harness.Ratio("server's memory", held[-1] / held[BATCHES // 2 - 1], FLAT, "at most", basis))
    for name, each in slow.items():
        if name != "healthz":
            basis = f"p95 of {repeats} at the client, answers whole; /healthz has {1000 * slow['healthz']:.1f} ms"
            result.ratios.append(harness.Ratio(f"view route, {name}, s", each, ROUTE_S, "at most", basis))


def plain(port: int, path: str) -> bytes:
    connection = connected(port)
    connection.request("GET", path)
    data = connection.getresponse().read()
    connection.close()
    return data


# -- open pages -------------------------------------------------------------------------------------


@contextmanager
def open_pages(port: int, told: list[dict[str, Any]]) -> Iterator[None]:
    program = [sys.executable, str(harness.HERE / "open_pages.py"), "--port", str(port), "--pages", str(PAGES)]
    process = subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin is not None
    assert process.stdout is not None
    if process.stdout.readline() != "ready\n":
        raise RuntimeError("the pages did not open")
    yield
    process.stdin.close()
    told.append(json.loads(process.stdout.read()))
    process.wait()


def pages(result: harness.Result, folder: Path) -> None:
    spent: dict[str, list[list[float]]] = {"none": [], "open": []}
    used: dict[str, list[float]] = {"none": [], "open": []}
    told: list[dict[str, Any]] = []
    with running_server(TENTH_MODEL_VALUES, folder=folder, environment=NO_QUOTA) as running:
        publisher = Publisher(running.port, RATE, authors=30)
        with chromium() as browser, counted_page(browser) as (page, _, asked), publisher:
            page.goto(f"http://127.0.0.1:{running.port}/ui/")
            page.wait_for_timeout(15_000)
        really = {urlsplit(url).path for url in asked}
        for _ in range(TURNS):
            for kind, turns in spent.items():
                with ExitStack() as stack:
                    if kind == "open":
                        stack.enter_context(open_pages(running.port, told))
                    before_s = cpu_s(running.process.pid)
                    with Publisher(running.port, RATE, authors=30) as publisher:
                        time.sleep(TURN_S)
                    used[kind].append((cpu_s(running.process.pid) - before_s) / len(publisher.told))
                turns.append([took_s for _, _, took_s in publisher.told])
        peak = running.peak_rss_bytes()
    imitated = {path for each in told for path in each["asked"]}
    if missing := {path for path in really - imitated if not path.startswith("/ui/")}:
        raise RuntimeError(f"pages ask for what open_pages.py does not: {sorted(missing)}")
    for kind, turns in spent.items():
        all_s = tuple(each for turn in turns for each in turn)
        result.timings[f"a publication of 0.1 MB, {PAGES if kind == 'open' else 'no'} pages open"] = harness.Timing(
            all_s
        )
    by_turn = [p95(there) / p95(without) for without, there in zip(spent["none"], spent["open"], strict=True)]
    result.facts["pages"] = {
        "p95 of each turn, ms": {kind: [round(1000 * p95(turn), 1) for turn in turns] for kind, turns in spent.items()},
        "p50 of each turn, ms": {
            kind: [round(1000 * statistics.median(turn), 1) for turn in turns] for kind, turns in spent.items()
        },
        "p95 with pages over without, by turn": by_turn,
        "server's CPU for each publication, pages included, ms": {
            kind: [round(1000 * each, 1) for each in turns] for kind, turns in used.items()
        },
        "what the pages of one turn asked": told[-1],
        "server's most memory, MB": peak / 1e6,
    }
    basis = f"median of {TURNS} turns of {TURN_S:g} s, {RATE} publications a second by 30 authors"
    result.ratios.append(harness.Ratio("p95 with 50 pages", statistics.median(by_turn), OTHERS, "at most", basis))


def main() -> None:
    parser = harness.arguments(__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, help="where the large ledgers are kept; default: made and forgotten")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS)
    options = parser.parse_args()
    if Path(sys.prefix).resolve() != PYTHON.parents[1].resolve():
        in_its_environment()
    if options.folder is not None:
        options.folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=options.folder) as held:
        folder = options.folder or Path(held)
        for name in options.only:
            result = harness.Result(f"console_{name}", f"The console: {name}", options.date)
            {"paint": paint, "live": live, "heap": heap, "routes": routes, "pages": pages}[name](result, folder)
            print(result.write())


if __name__ == "__main__":
    main()
