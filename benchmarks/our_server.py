"""This project's server as a benchmark starts it: by its own command, durable, with its defaults.

with running_server(harness.SMALL_MODEL_VALUES, folder=Path("/tmp")) as running:
    running.port, running.peak_rss_bytes()
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import harness
import numpy as np
from safetensors.numpy import save_file

STOP_TIMEOUT_S = 30
COMMAND = [sys.executable, "-m", "dag_acfl"]

TINY_MODEL_VALUES, TENTH_MODEL_VALUES, MB_MODEL_VALUES = 58, 25_450, 249_640
"""Next to nothing, 0.1 MB and 1 MB."""
SHAPES: dict[int, dict[str, tuple[int, ...]]] = {
    TINY_MODEL_VALUES: {"fc1.weight": (4, 4), "fc1.bias": (4,), "fc2.weight": (7, 4), "fc2.bias": (10,)},
    TENTH_MODEL_VALUES: {"fc1.weight": (32, 784), "fc1.bias": (32,), "fc2.weight": (10, 32), "fc2.bias": (10,)},
    MB_MODEL_VALUES: {"fc1.weight": (314, 784), "fc1.bias": (314,), "fc2.weight": (10, 314), "fc2.bias": (10,)},
    harness.SMALL_MODEL_VALUES: {
        "fc1.weight": (128, 784),
        "fc1.bias": (128,),
        "fc2.weight": (10, 128),
        "fc2.bias": (10,),
    },
    harness.LARGE_MODEL_VALUES: {
        "conv1.weight": (32, 1, 5, 5),
        "conv1.bias": (32,),
        "conv2.weight": (32, 32, 5, 5),
        "conv2.bias": (32,),
        "fc1.weight": (2048, 1568),
        "fc1.bias": (2048,),
        "fc2.weight": (10, 2048),
        "fc2.bias": (10,),
    },
}
"""The paper's MLP and CNN for MNIST, and as many tensors with fewer values. ``fc2`` is the last layer."""


@dataclass(frozen=True, slots=True)
class Running:
    """A server that answers."""

    process: subprocess.Popen[str]
    port: int

    def processes(self) -> list[int]:
        """Process ids: the server's own, then its children's."""
        threads = Path(f"/proc/{self.process.pid}/task").glob("*/children")
        children = " ".join(each.read_text(encoding="ascii") for each in threads)
        return [self.process.pid, *map(int, children.split())]

    def peak_rss_bytes(self) -> int:
        """High-water marks of resident memory, the server's and its child processes' together."""
        return sum(memory_of(pid, "VmHWM") for pid in self.processes())


@contextmanager
def running_server(
    values: int,
    *,
    folder: Path,
    rules: str = "",
    compare: str | None = "fc2.weight,fc2.bias",
    program: Sequence[str] = COMMAND,
    environment: Mapping[str, str] | None = None,
) -> Iterator[Running]:
    """A new ledger for a model of ``values`` float32 values, served from a temporary folder in ``folder``.

    Args:
        values: One of ``SHAPES``.
        folder: Where the temporary folder goes.
        rules: What its genesis file says beside a name; default: the profile ``open``.
        compare: The tensors that are compared; None: as the ledger would have it.
        program: What serves it.
        environment: Of the server, beside this process's own.

    Raises:
        CalledProcessError: the ledger could not be made.
        RuntimeError: the server ended before it said where it listens.
    """
    with tempfile.TemporaryDirectory(dir=folder) as held:
        model, data_dir = Path(held) / "model.safetensors", Path(held) / "data"
        write_model(values, model)
        environment = {**os.environ, "PYTHONPATH": str(harness.ROOT), **(environment or {})}
        genesis = Path(held) / "genesis.toml"
        genesis.write_text(f'name = "benchmark"\n{rules}')
        init = [*COMMAND, "ledger", "init", str(genesis), "--model", str(model), "--data-dir", str(data_dir)]
        init += [] if compare is None else ["--compare", compare]
        subprocess.run(init, check=True, capture_output=True, cwd=held, env=environment)
        # Devices that are all alike raise alarms.
        serve = [*program, "serve", "--data-dir", str(data_dir), "--port", "0", "--log-level", "error"]
        process = subprocess.Popen(serve, stdout=subprocess.PIPE, text=True, cwd=held, env=environment)
        try:
            yield Running(process, listening_port(process))
        finally:
            process.terminate()
            try:
                process.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            if process.stdout is not None:
                process.stdout.close()


def listening_port(process: "subprocess.Popen[str]") -> int:
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith("serving on "):
            return int(line.rsplit(":", 1)[1])
    raise RuntimeError(f"the server ended with status {process.wait()} before it served")


def write_model(values: int, path: Path) -> None:
    """An initial model of the right size: small normal values, the same each time."""
    rng = np.random.default_rng(6)
    arrays = {
        name: (rng.standard_normal(shape, dtype=np.float32) * np.float32(0.05))
        for name, shape in SHAPES[values].items()
    }
    assert sum(each.size for each in arrays.values()) == values, "the shapes must add up to the size asked for"
    save_file(arrays, path)


def memory_of(pid: int, field: str) -> int:
    """Bytes of ``VmRSS`` or ``VmHWM`` of a process."""
    fields = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines())
    return int(fields[field].split()[0]) * 1024


def cpu_s(pid: int) -> float:
    """CPU seconds of a process, its threads included."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
