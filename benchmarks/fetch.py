"""Fetch a 13 MB aggregate over HTTP against a bare uvicorn route that streams the same number of bytes.

The same client code (``limits.fetcher``: standard library, one kept connection, one buffer) asks both servers in turn.
The aggregate is a real one: three authors publish, one's selection averages the others' models, and its digest is
fetched. The product's server finds it in memory, as every client of a cluster after the first does; the bare route has
nothing to find.

    python benchmarks/fetch.py
"""

import statistics
import tempfile
from contextlib import ExitStack, closing
from pathlib import Path

import harness
from device_client import Device, connected
from limits import bare_stream, fetcher
from our_server import running_server

AUTHORS = 3
TARGET = 0.6
OURS, BARE = "GET of an aggregate", "bare uvicorn route"


def main() -> None:
    parser = harness.arguments(__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()), help="where the database goes")
    parser.add_argument("--repeats", type=int, default=60)
    options = parser.parse_args()
    result = harness.Result("fetch", "Fetch a 13 MB aggregate over HTTP", options.date)
    with ExitStack() as stack:
        running = stack.enter_context(running_server(harness.LARGE_MODEL_VALUES, folder=options.folder))
        devices = [Device(running.port, seed) for seed in range(1, AUTHORS + 1)]
        joined = [device.select()["id"] for device in devices]  # all before any publishes: none approves another
        for device, selection_id in zip(devices, joined, strict=True):
            device.publish(selection_id)
        selection = devices[0].select()
        if selection["source"] != "parents" or len(selection["parents"]) < 2:
            raise RuntimeError(f"the selection averaged nothing: {selection['source']} of {selection['parents']}")
        for device in devices:
            device.connection.close()
        connection = stack.enter_context(closing(connected(running.port)))
        size = selection["aggregate"]["size"]
        work = {
            OURS: fetcher(connection, selection["aggregate"]["href"], size),
            BARE: stack.enter_context(bare_stream(size)),
        }
        result.timings = harness.interleave(work, repeats=options.repeats, warmup=5)
    ours, bare = result.timings[OURS], result.timings[BARE]
    result.ratios.append(
        harness.Ratio(
            "share of the bare route's speed",
            bare.median_s / ours.median_s,
            TARGET,
            "at least",
            "p50 of bare / of ours",
        )
    )
    result.facts |= {
        "bytes": size,
        "share_by_minima": round(bare.min_s / ours.min_s, 3),
        "median_mb_per_s": {name: round(size / timing.median_s / 1e6) for name, timing in result.timings.items()},
        "mean_ms": {name: round(statistics.fmean(timing.all_s) * 1e3, 3) for name, timing in result.timings.items()},
    }
    print(result.write())


if __name__ == "__main__":
    main()
