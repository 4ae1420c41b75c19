"""The house in figures: one column per commit, so that a change of structure can be seen.

    python .ci/house.py 6c7f39c HEAD          # make house ARGS="6c7f39c HEAD"

Lines and tokens of every folder, settings, options, the longest file and function, and how many of our modules take
part in a selection, a publication, an update that reaches a second server, and a simulation. The paths are counted
on real processes: each commit is checked out and installed in an environment of its own (two minutes each), its servers
are started, and every module whose functions are called between two signals is noted. Nothing here says what is good.
"""

import ast
import io
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
import tokenize
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

PACKAGES = ("fl_core", "ledger_server", "fl_client", "fl_simulator", "dag_acfl")
FOLDERS = (*PACKAGES, "tests", "benchmarks", "experiments", "examples", "docs", "migrations", ".ci")
WAIT_S = 60.0
TRACER = f"""
import os, signal, sys, threading
if os.environ.get("HOUSE_TRACE"):
    seen, on = set(), [os.environ.get("HOUSE_TRACE_ALL") == "1"]
    def note(frame, event, _):
        if on[0] and event == "call" and frame.f_code.co_flags & 1:  # functions, not modules and class bodies
            name = frame.f_globals.get("__name__", "")
            if name.partition(".")[0] in {PACKAGES!r}:
                seen.add(name)
    def start(*_):
        seen.clear(); on[0] = True
    def stop(*_):
        on[0] = False
        path = os.environ["HOUSE_TRACE"] + f".{{os.getpid()}}"
        with open(path + ".new", "w") as file:
            file.write("\\n".join(sorted(seen)))
        os.replace(path + ".new", path)
    threading.setprofile(note); sys.setprofile(note)
    signal.signal(signal.SIGUSR1, start); signal.signal(signal.SIGUSR2, stop)
    if on[0]:
        import atexit
        atexit.register(stop)
"""
FIRST_MODEL = """
import sys, numpy as np
from pathlib import Path
from {module} import ModelLayout, encode_model
rng = np.random.default_rng(int(sys.argv[2]))
arrays = {{"fc.weight": rng.normal(size=(2, 300)).astype("f4"), "fc.bias": np.zeros(2, "f4")}}
Path(sys.argv[1]).write_bytes(encode_model(ModelLayout.of_arrays(arrays), arrays))
"""


def python_files(tree: Path, folder: str) -> list[Path]:
    """The folder's committed Python files."""
    listed = subprocess.run(["git", "ls-files", folder], cwd=tree, capture_output=True, text=True, check=True).stdout
    return [tree / name for name in listed.split("\n") if name.endswith(".py")]


def num_tokens(text: str) -> int:
    """Tokens that are neither layout nor comment; a docstring is one."""
    idle = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
    return sum(token.type not in idle for token in tokenize.generate_tokens(io.StringIO(text).readline))


def longest(tree: Path) -> tuple[str, str]:
    """The longest file and the longest function of the packages, each with its number of lines."""
    files: list[tuple[int, str]] = []
    functions: list[tuple[int, str]] = []
    for file in (each for package in PACKAGES for each in python_files(tree, package)):
        text = file.read_text("utf-8")
        files.append((text.count("\n"), str(file.relative_to(tree))))
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                length = (node.end_lineno or node.lineno) - node.lineno + 1
                functions.append((length, f"{file.relative_to(tree)} {node.name}"))
    (file_lines, file_name), (function_lines, function_name) = max(files), max(functions)
    return f"{file_lines} ({file_name})", f"{function_lines} ({function_name})"


def static_figures(tree: Path) -> Iterator[tuple[str, str]]:
    """What can be counted without running anything."""
    sizes = {}
    for folder in FOLDERS:
        texts = [file.read_text("utf-8") for file in python_files(tree, folder)]
        sizes[folder] = (sum(text.count("\n") for text in texts), sum(map(num_tokens, texts)))
        yield f"{folder}: lines / tokens", f"{sizes[folder][0]:,} / {sizes[folder][1]:,}"
    five = [sizes[package] for package in PACKAGES]
    yield "the five packages", f"{sum(lines for lines, _ in five):,} / {sum(tokens for _, tokens in five):,}"
    yield "settings", str(len(re.findall(r"`DAG_ACFL_\w+` \|", (tree / "docs/settings.md").read_text("utf-8"))))
    yield (
        "CLI options and arguments",
        str(len(re.findall(r"^\| `", (tree / "docs/commands.md").read_text("utf-8"), re.MULTILINE))),
    )
    file, function = longest(tree)
    yield "longest file", file
    yield "longest function", function


def python_of(tree: Path) -> str:
    """The interpreter with the packages that this commit wants."""
    return str(tree / ".venv/bin/python")


class Traced:
    """A process of one tree whose called modules can be asked for."""

    def __init__(self, tree: Path, folder: Path, *command: str, everything: bool = False) -> None:
        self.trace = folder / "trace"
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("DAG_ACFL_")}
        self.process = subprocess.Popen(
            [python_of(tree), "-m", "dag_acfl", *command],
            cwd=folder,
            env=inherited
            | {"PYTHONPATH": f"{folder}{os.pathsep}{tree}", "HOUSE_TRACE": str(self.trace)}
            | ({"HOUSE_TRACE_ALL": "1"} if everything else {}),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def start(self) -> None:
        """Note modules from now on."""
        self.process.send_signal(signal.SIGUSR1)
        time.sleep(0.3)

    def stop(self) -> set[str]:
        """The modules noted since ``start``."""
        time.sleep(0.3)
        path = self.trace.with_name(f"{self.trace.name}.{self.process.pid}")
        path.unlink(missing_ok=True)
        self.process.send_signal(signal.SIGUSR2)
        wait_for(path.exists)
        return set(path.read_text().split())


def wait_for(condition: Callable[[], bool]) -> None:
    """Wait until it holds."""
    deadline = time.monotonic() + WAIT_S
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError("what was waited for did not come")
        time.sleep(0.05)


def ask(url: str, body: bytes | None = None, content_type: str = "application/json") -> dict[str, object]:
    """A request and its JSON answer."""
    request = urllib.request.Request(url, body, {"Content-Type": content_type} if body is not None else {})
    with urllib.request.urlopen(request, timeout=30) as answer:
        found: dict[str, object] = json.load(answer)
        return found


def is_ready(url: str) -> bool:
    """Whether a server answers."""
    try:
        return ask(f"{url}/readyz") is not None
    except OSError:
        return False


@contextmanager
def server(tree: Path, folder: Path, *options: str) -> Iterator[tuple[Traced, str]]:
    """A server of the ledger in ``folder``; its process and its address."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    traced = Traced(tree, folder, "serve", "--port", str(port), *options)
    try:
        url = f"http://127.0.0.1:{port}"
        wait_for(lambda: is_ready(url))
        yield traced, url
    finally:
        traced.process.terminate()
        traced.process.wait(30)


def publish(tree: Path, url: str, selection: object, model: bytes) -> str:
    """Publish a model under a selection; the update's id."""
    shown = {"secret": "5" * 64} if (tree / "fl_core/dag/author.py").exists() else {}  # not before the second edition
    boundary = "house"
    parts = (
        f'--{boundary}\r\nContent-Disposition: form-data; name="transaction"\r\n\r\n'
        f"{json.dumps({'selection': selection, 'num_examples': 10, **shown})}\r\n--{boundary}\r\n"
        'Content-Disposition: form-data; name="model"; filename="m"\r\n\r\n'
    ).encode()
    body = parts + model + f"\r\n--{boundary}--\r\n".encode()
    return str(ask(f"{url}/v1/transactions", body, f"multipart/form-data; boundary={boundary}")["id"])


def paths(tree: Path) -> Iterator[tuple[str, str]]:
    """How many modules take part in each act, on real processes."""
    with tempfile.TemporaryDirectory(prefix="dag-acfl-house-") as temporary:
        first, second = Path(temporary, "first"), Path(temporary, "second")
        for folder in (first, second):
            folder.mkdir()
            (folder / "sitecustomize.py").write_text(TRACER)
        environment = os.environ | {"PYTHONPATH": str(tree)}
        module = "fl_core.models" if (tree / "fl_core/models.py").exists() else "fl_core.weights"

        def run(*command: str, folder: Path = first) -> str:
            done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
            if done.returncode:
                raise RuntimeError(f"{' '.join(command)[-300:]}: {done.stderr[-500:]}")
            return done.stdout

        command = (python_of(tree), "-m", "dag_acfl")
        for seed in range(3):
            run(python_of(tree), "-c", FIRST_MODEL.format(module=module), f"{seed}.safetensors", str(seed))
        models = [(first / f"{seed}.safetensors").read_bytes() for seed in range(3)]
        run(*command, "ledger", "init", "--name", "house", "--model", "0.safetensors")
        with server(tree, first) as (one, url):
            chosen = ask(f"{url}/v1/selections", models[1], "application/vnd.safetensors")
            mine = publish(tree, url, chosen["id"], models[1])
            one.start()
            chosen = ask(f"{url}/v1/selections", json.dumps({"transaction": mine}).encode())
            yield "modules of a selection", str(len(one.stop()))
            one.start()
            publish(tree, url, chosen["id"], models[2])
            yield "modules of a publication", str(len(one.stop()))
            ledger = str(ask(f"{url}/v1/genesis")["ledger"])
            run(*command, "ledger", "join", url, "--ledger", ledger, folder=second)
        peers = {}
        for folder in (first, second):
            with socket.socket() as probe:
                probe.bind(("127.0.0.1", 0))
                peers[folder] = probe.getsockname()[1]
        entry = {
            folder: run(*command, "keys", "peer", f"http://127.0.0.1:{port}", folder=folder).split()[-1].strip('",')
            for folder, port in peers.items()
        }
        if (tree / "dag_acfl/commands/members.py").exists():
            run(*command, "members", "add", entry[second])
        one = Traced(tree, first, "serve", "--port", str(peers[first]), "--peer", entry[second])
        two = Traced(tree, second, "serve", "--port", str(peers[second]), "--peer", entry[first])
        try:
            here, there = (f"http://127.0.0.1:{peers[folder]}" for folder in (first, second))
            wait_for(lambda: is_ready(here) and is_ready(there))
            time.sleep(3)
            chosen = ask(f"{here}/v1/selections", json.dumps({"transaction": mine}).encode())
            two.start()
            made = publish(tree, here, chosen["id"], models[0])

            def arrived() -> bool:
                try:
                    return bool(ask(f"{there}/v1/transactions/{made}"))
                except OSError:
                    return False

            wait_for(arrived)
            yield "modules of an update that comes from a peer (receiver)", str(len(two.stop()))
        finally:
            for traced in (one, two):
                traced.process.terminate()
                traced.process.wait(30)
        yield "modules of a simulation", str(len(simulation(tree, first)))


def simulation(tree: Path, folder: Path) -> set[str]:
    """The modules that take part in two rounds of an experiment, its report included."""
    experiment = (tree / "experiments/digits.toml").read_text().replace("rounds = 40", "rounds = 2")
    (folder / "digits.toml").write_text(experiment.replace("[0, 1]", "[0]"))
    Traced(tree, folder, "simulate", "digits.toml", "--out", "runs", everything=True).process.wait(300)
    lists = [file.read_text().split() for file in folder.glob("trace.*")]
    return {name for names in lists if any("fl_simulator" in name for name in names) for name in names}


def main(commits: list[str]) -> None:
    """Print the table."""
    columns: list[dict[str, str]] = []
    for commit in commits:
        with tempfile.TemporaryDirectory(prefix="dag-acfl-tree-") as temporary:
            tree = Path(temporary, "tree")
            subprocess.run(["git", "worktree", "add", "-q", "--detach", str(tree), commit], check=True)
            try:
                column = dict(static_figures(tree))
                subprocess.run(["make", "-s", ".venv/.installed-dev"], cwd=tree, stdout=sys.stderr, check=True)
                column.update(paths(tree))
            finally:
                subprocess.run(["git", "worktree", "remove", "--force", str(tree)], check=True)
        columns.append(column)
    print("| |", " | ".join(commits), "|")
    print("|---|" + "---|" * len(commits))
    for row in columns[-1]:
        print(f"| {row} |", " | ".join(column.get(row, "-") for column in columns), "|")


if __name__ == "__main__":
    main(sys.argv[1:] or ["HEAD"])
