"""Pages of the console as the server sees them, many at once, without browsers: ``console.py`` starts this.

Each asks from an address of its own, over connections that it keeps: the console's files, what every view shares, the
newest part of the journal, and then the stream of what comes; while something comes it asks for what every view shares
again, as seldom as a page does (``ledger_server/console/ledger.js``). ``console.py`` compares what it asks for with
what a page in Chromium asks for.

Prints ``ready`` when all pages hear the stream, and at the end of its input what they asked for, as JSON.

    python benchmarks/open_pages.py --port 8900 --pages 50
"""

import argparse
import asyncio
import json
import random
import sys
import time
from collections import Counter

from ledger_server.api.console import files

REST_S, REST = 4.0, 20
PART = 500


class Page:
    """One console: what its page asks for, and the events that it heard."""

    def __init__(self, port: int, number: int, asked: Counter[str]) -> None:
        self.port, self.asked = port, asked
        self.address = f"127.0.{1 + number // 250}.{1 + number % 250}"
        self.events = self.received = 0
        self.is_new = asyncio.Event()
        self.is_listening = asyncio.Event()

    async def open(self) -> None:
        """Load the page, and be one from then on."""
        self.reader, self.writer = await self.connect()
        for path in files():
            await self.get(f"/ui/{path}")
        for path in ("/v1/view/source", "/v1/genesis"):
            await self.get(path)
        await self.latest()
        await self.lately()
        self.tasks = [asyncio.create_task(self.listen()), asyncio.create_task(self.keep_up())]
        await self.is_listening.wait()
        await self.latest()

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self.port, local_addr=(self.address, 0), limit=1 << 24)

    def request(self, path: str) -> bytes:
        self.asked[path.partition("?")[0]] += 1
        return f"GET {path} HTTP/1.1\r\nhost: 127.0.0.1:{self.port}\r\naccept-encoding: gzip\r\n\r\n".encode()

    async def get(self, path: str) -> bytes:
        self.writer.write(self.request(path))
        head = await self.reader.readuntil(b"\r\n\r\n")
        status = int(head[9:12])
        if status != 200:
            raise RuntimeError(f"{path}: {status}")
        fields = dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:-2])
        body = await self.reader.readexactly(int(fields[b"content-length"]))
        self.received += len(head) + len(body)
        return body

    async def latest(self) -> None:
        await self.get("/v1/view/updates?first=0&end=1")
        await self.get(f"/v1/view/updates?first=1&end={1 + PART}&most={PART}")

    async def lately(self) -> None:
        await self.get("/v1/view/ledger")

    async def listen(self) -> None:
        reader, writer = await self.connect()
        writer.write(self.request("/v1/view/events"))
        await reader.readuntil(b"\r\n\r\n")
        self.is_listening.set()
        while line := await reader.readline():
            self.received += len(line)
            if line.startswith(b"event: updates"):
                self.events += 1
                self.is_new.set()

    async def keep_up(self) -> None:
        rest_s = REST_S
        while True:
            await self.is_new.wait()
            await asyncio.sleep(rest_s)
            self.is_new.clear()
            began_s = time.perf_counter()
            await self.lately()
            rest_s = max(REST_S, REST * (time.perf_counter() - began_s)) * random.uniform(0.75, 1.25)


async def play(port: int, count: int) -> None:
    asked: Counter[str] = Counter()
    pages = [Page(port, number, asked) for number in range(count)]
    for page in pages:
        await page.open()
    print("ready", flush=True)
    ended = asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    failed = [task for page in pages for task in page.tasks]
    done, _ = await asyncio.wait([ended, *failed], return_when=asyncio.FIRST_COMPLETED)
    for task in done - {ended}:
        task.result()
    heard = {"events": sum(page.events for page in pages), "bytes": sum(page.received for page in pages)}
    print(json.dumps({"asked": asked, **heard}), flush=True)
    for task in failed:
        task.cancel()


def main() -> None:
    parser = argparse.ArgumentParser(description="Pages of the console, without browsers.")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--pages", type=int, required=True)
    options = parser.parse_args()
    asyncio.run(play(options.port, options.pages))


if __name__ == "__main__":
    main()
