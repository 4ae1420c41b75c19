"""Install the built wheel with each extra alone, and the sdist with none, each in an environment of its own.

    python .ci/check_extras.py dist              # all; half an hour and 2 GB of downloads
    python .ci/check_extras.py dist s3 otel

As a user installs them, without constraints.txt, so that a release of somebody else's that breaks us is seen; only
torch is the one that constraints.txt names, since the newest may be a build of several GB. Prints a row for each.
"""

import os
import subprocess
import sys
import tempfile
import time
import tomllib
import venv
from pathlib import Path

NEEDED = {
    "": "dag_acfl.cli ledger_server.app fl_client",
    "torch": "fl_client.training.trainer",
    "postgres": "psycopg.pq ledger_server.store",
    "s3": "obstore.store ledger_server.store.blobs.s3",
    "otel": "opentelemetry.exporter.otlp.proto.http.trace_exporter opentelemetry.sdk.trace",
    "report": "fl_simulator.report fl_simulator.plots.graph matplotlib.pyplot pandas",
    "tensorboard": "fl_client.integrations.trackers.tensorboard",
    "mlflow": "fl_client.integrations.trackers.mlflow",
    "dp": "fl_client.training.dp_sgd",
    "flower": "fl_client.integrations.flower.founding fl_client.integrations.flower.trainer",
    "wandb": "fl_client.integrations.trackers.wandb",
    "ray": "ray.util.client fl_simulator.run.on_ray",
    "demo": "torch matplotlib.pyplot dag_acfl.commands.demo",
    "test": "pytest xdist hypothesis schemathesis moto.server torch ray",
    "dev": "mypy.api build importlinter zensical pytest",
}
"""Of each extra, the modules that must be there then, ours that use it among them."""


def check(requirement: str, modules: str) -> str:
    """Install, import, ``pip check``; the row's figures. Ends the program where one of them fails."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("DAG_ACFL_", "PYTHON"))}
    torch = next(line for line in Path("constraints.txt").read_text().splitlines() if line.startswith("torch=="))
    with tempfile.TemporaryDirectory(prefix="dag-acfl-extra-") as temporary:
        folder = Path(temporary)
        (folder / "torch.txt").write_text(torch)
        venv.create(folder / "venv", with_pip=True)
        pip = (str(folder / "venv/bin/python"), "-m", "pip", "--disable-pip-version-check", "--no-input")

        def run(*command: str) -> str:
            done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
            if done.returncode != 0:
                sys.exit(f"error: {requirement}: {' '.join(command)[:200]}\n{done.stdout[-2000:]}{done.stderr[-4000:]}")
            return done.stdout

        began = time.monotonic()
        run(*pip, "install", "--quiet", "--constraint", "torch.txt", requirement)
        took_s = time.monotonic() - began
        run(*pip, "check")
        run(pip[0], "-W", "ignore", "-c", f"import {modules.replace(' ', ', ')}")
        run(str(folder / "venv/bin/dag-acfl"), "--version")
        packages = len(run(*pip, "list", "--format=freeze").splitlines())
        blocks = sum(file.lstat().st_blocks for file in (folder / "venv").rglob("*"))
    return f"{packages:4d} packages {blocks * 512 / 1e6:8,.0f} MB {took_s:6.0f} s"


def main(dist: Path, wanted: list[str]) -> None:
    """Check the extras named, or all and the sdist."""
    (wheel,), (sdist,) = dist.resolve().glob("*.whl"), dist.resolve().glob("*.tar.gz")
    declared = tomllib.loads(Path("pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
    if differing := NEEDED.keys() - {""} ^ declared.keys():
        sys.exit(f"error: extras here or in pyproject.toml alone: {', '.join(sorted(differing))}")
    if not wanted:
        print(f"{'sdist':<14}{check(str(sdist), NEEDED[''])}", flush=True)
    for extra in wanted or NEEDED:
        requirement = f"{wheel}[{extra}]" if extra else str(wheel)
        print(f"{extra or 'none':<14}{check(requirement, NEEDED[extra])}", flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
