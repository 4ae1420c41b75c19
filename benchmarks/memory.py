"""Resident memory of ``dag-acfl serve``: idle, and with ten 13 MB models in flight.

Idle is after the start and one answered request. In flight: ten devices, each with its own connection and each having
published before, send a 13 MB model at the same moment and fetch an average of several models right after, six times
over; what counts is the high-water mark from the first of these waves on. The devices lie in two clusters, which makes
sure that there is a change to find. The kernel's own counters are read (VmRSS and VmHWM), which count shared library
pages in full.

    python benchmarks/memory.py
"""

import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import harness
from device_client import Device
from our_server import Running, memory_of, running_server

DEVICES = 10
WAVES = 6
IDLE_TARGET_MB, BUSY_TARGET_MB = 120, 400
MB = 1_000_000


def loaded_libraries(pid: int, word: str) -> list[str]:
    """Files mapped into a process whose path has ``word`` in it."""
    lines = Path(f"/proc/{pid}/maps").read_text(encoding="utf-8").splitlines()
    return sorted({line.split(maxsplit=5)[-1] for line in lines if f"/{word}" in line})


def forget_peaks(running: Running) -> None:
    for pid in running.processes():
        Path(f"/proc/{pid}/clear_refs").write_text("5", encoding="ascii")


def measured(running: Running, field: str) -> dict[str, float]:
    """Megabytes by process, and all together."""
    server, *others = running.processes()
    figures = {"server": memory_of(server, field) / MB, "children": sum(memory_of(pid, field) for pid in others) / MB}
    return {name: round(each, 1) for name, each in {**figures, "together": sum(figures.values())}.items()}


def main() -> None:
    parser = harness.arguments(__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()), help="where the database goes")
    options = parser.parse_args()
    result = harness.Result("memory", "Resident memory of the server, 13 MB models", options.date)
    with running_server(harness.LARGE_MODEL_VALUES, folder=options.folder) as running:
        first = Device(running.port, seed=1, cluster=1)
        time.sleep(1.0)
        idle = measured(running, "VmRSS")
        result.facts["idle, MB"] = idle
        devices = [first, *(Device(running.port, seed, cluster=seed % 2) for seed in range(2, DEVICES + 1))]
        for device in devices:
            device.round()
        for device in devices:
            device.round()
        result.facts["after two rounds one by one, MB"] = measured(running, "VmRSS")
        forget_peaks(running)
        start = threading.Barrier(DEVICES)

        def wave(device: Device) -> None:
            selection = device.select()
            start.wait()
            device.change()
            device.publish(selection["id"])
            following = device.select()
            start.wait()
            device.fetch(following["aggregate"]["href"])

        with ThreadPoolExecutor(DEVICES) as pool:
            for _ in range(WAVES):
                list(pool.map(wave, devices))
        busy = measured(running, "VmHWM")
        result.facts["ten 13 MB models in flight, high-water mark, MB"] = busy
        result.facts["right after, MB"] = measured(running, "VmRSS")
        torch = [name for pid in running.processes() for name in loaded_libraries(pid, "torch")]
        result.facts["torch libraries mapped"] = torch
        result.facts["processes"] = len(running.processes())
    result.ratios += [
        harness.Ratio("idle, MB", idle["server"], IDLE_TARGET_MB, "at most", "VmRSS of the server's process"),
        harness.Ratio(
            "ten 13 MB models in flight, MB", busy["server"], BUSY_TARGET_MB, "at most", "VmHWM of the server's process"
        ),
        harness.Ratio("torch libraries mapped", len(torch), 0, "at most", "/proc/PID/maps of all processes"),
    ]
    print(result.write())


if __name__ == "__main__":
    main()
