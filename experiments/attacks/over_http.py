"""Attacks on the ledger itself, over HTTP: eclipse, depth, flood, takeover, burnt sequences, withheld evidence.

    python -m experiments.attacks.over_http                     # all of them, each on a ledger of its own
    python -m experiments.attacks.over_http eclipse depth

Eight honest clients, four of them without a key, learn digits that hang two ways, one after another, on a ledger that
offers everybody's newest update, and on one that offers tips; a pruning every two seconds keeps little. From the third
turn on an attacker acts after each honest publication. Told are honest selections that fell back to the own model,
newest honest models that nobody can get any more, and honest clients whose publication was refused; and how many of the
attacker's requests were. Written: ``experiments/results/attacks/over_http/summary.csv`` and ``report.md``.
"""

import argparse
import itertools
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import httpx2
import numpy as np
import pandas as pd
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from experiments import reporting
from fl_client import LedgerClient
from fl_client.client import Published
from fl_core.errors import DagAcflError
from fl_core.models import ModelLayout, TensorSpec, encode_model
from fl_core.models import decode_model as decode
from fl_core.types import Matrix32, digest_of
from fl_core.wire import v1
from fl_simulator.data.rotated import ClientData, rotated_digits
from fl_simulator.report import page, to_markdown
from fl_simulator.run.environment import describe_environment

RESULTS: Final = reporting.RESULTS / "attacks" / "over_http"
CLIENTS: Final = 8
TURNS: Final = 8
FROM_TURN: Final = 2
DEPTH: Final = 205
"""Beyond the 200 generations for which an update used to be offered."""
NAMES: Final = 1005
"""Beyond ``max_candidates``."""
PRUNE: Final = {"DAG_ACFL_PRUNE__KEEP_DAYS": "0.0002", "DAG_ACFL_PRUNE__EVERY_S": "2"}
LAYOUT: Final = ModelLayout.of([TensorSpec("fc.weight", "F32", (10, 64)), TensorSpec("fc.bias", "F32", (10,))])
LAST_SEQUENCE: Final = 2**63 - 1


def trained(model: bytes, data: ClientData, *, epochs: int, seed: int) -> bytes:
    """Softmax regression by NumPy, batches of ten, learning rate 0.5."""
    arrays = decode(LAYOUT, model)
    weight, bias = arrays["fc.weight"].copy(), arrays["fc.bias"].copy()
    images, rng = data.train_x.reshape(len(data.train_y), -1), np.random.default_rng(seed)
    for _ in range(epochs):
        for batch in np.array_split(rng.permutation(len(images)), max(len(images) // 10, 1)):
            error = softmax(images[batch] @ weight.T + bias)
            error[np.arange(len(batch)), data.train_y[batch]] -= 1
            weight -= 0.5 / len(batch) * error.T @ images[batch]
            bias -= 0.5 * error.mean(axis=0)
    return encode_model(LAYOUT, {"fc.weight": weight, "fc.bias": bias})


def softmax(logits: Matrix32) -> Matrix32:
    powers: Matrix32 = np.exp(logits - logits.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)


@dataclass(slots=True)
class Honest:
    """A client that does as it should, and what befell it."""

    client: LedgerClient
    data: ClientData
    newest: Published | None = None
    model: bytes = b""
    selections: int = 0
    own: int = 0
    refused: int = 0

    def take_turn(self, turn: int) -> None:
        """Ask, train, publish; a refusal is counted and the next turn asks anew."""
        if self.newest is None:
            shown = trained(bytes(self.client.genesis_model()), self.data, epochs=3, seed=turn)
            selection = self.client.select(model=shown)
        else:
            selection = self.client.select(transaction=self.newest.id)
        if turn >= FROM_TURN:
            self.selections += 1
            self.own += selection.source == "own"
        given = bytes(self.client.download(selection.aggregate.digest))
        try:
            model = trained(given, self.data, epochs=3, seed=turn)
            self.newest = self.client.publish(model, selection=selection, num_examples=len(self.data.train_y))
            self.model = model
        except DagAcflError as error:
            self.refused += 1
            print(f"  an honest publication was refused: {error}", flush=True)


@dataclass(slots=True)
class Attacker:
    """One author of its own, the address, and how its requests were answered."""

    url: str
    own: LedgerClient
    http: httpx2.Client
    newest: Published | None = None
    answers: list[bool] = field(default_factory=list)

    def publish(self, client: LedgerClient, **how: object) -> Published | None:
        """What the SDK sends for this author; None where it is refused."""
        try:
            found = client.publish(self.model(), num_examples=10_000, **how)  # type: ignore[arg-type]
        except DagAcflError:
            self.answers.append(False)
            return None
        self.answers.append(True)
        return found

    def post(self, message: dict[str, object]) -> None:
        """Publish with exactly this message."""
        files = {"transaction": (None, httpx2_json(message)), "model": (None, self.model(), v1.MODEL_MEDIA_TYPE)}
        self.answers.append(self.http.post(v1.TRANSACTIONS, files=files).is_success)

    def model(self) -> bytes:
        """Noise, near genesis."""
        rng = np.random.default_rng(len(self.answers))
        arrays = {each.name: rng.normal(0, 0.01, each.shape).astype(np.float32) for each in LAYOUT.tensors}
        return encode_model(LAYOUT, arrays)


def httpx2_json(message: dict[str, object]) -> bytes:
    return httpx2.Request("POST", "http://none", json=message).content


def eclipse(attacker: Attacker, honest: list[Honest]) -> None:
    """Approve everybody's newest, so that none is a tip."""
    parents = sorted(each.newest.id for each in honest if each.newest is not None)
    start = attacker.own.genesis().model_digest
    attacker.publish(attacker.own, parents=parents, start=start)


def depth(attacker: Attacker, honest: list[Honest]) -> None:  # noqa: ARG001
    """A chain of one's own, as deep as ages once were counted in."""
    for _ in range(DEPTH if attacker.newest is None else 1):
        parent = attacker.own.ledger_id() if attacker.newest is None else attacker.newest.id
        attacker.newest = attacker.publish(attacker.own, parents=[parent]) or attacker.newest


def flood(attacker: Attacker, honest: list[Honest]) -> None:  # noqa: ARG001
    """More names than a selection compares, each with one update."""
    for _ in range(NAMES if not attacker.answers else 1):
        with LedgerClient(attacker.url, key=Ed25519PrivateKey.generate()) as name:
            attacker.publish(name, parents=[attacker.own.ledger_id()])


def takeover(attacker: Attacker, honest: list[Honest]) -> None:
    """Ask with each victim's public hash, and publish in its name."""
    for each in honest:
        if each.newest is None:
            continue
        asked = attacker.http.post(v1.SELECTIONS, json={"transaction": each.newest.id})
        message = {"selection": asked.json()["id"], "num_examples": 10_000}
        attacker.post(message)
        attacker.post({**message, "author": each.client.author})
        attacker.post({**message, "author": each.client.author, "secret": "ab" * 32})


def burning(attacker: Attacker, honest: list[Honest]) -> None:
    """Use up each victim's numbers, and one's own."""
    parents = [attacker.own.ledger_id()]
    for each in honest:
        message = {"parents": parents, "num_examples": 1, "author": each.client.author, "sequence": LAST_SEQUENCE}
        attacker.post(message)
    attacker.publish(attacker.own, parents=parents, sequence=LAST_SEQUENCE)


def withheld(attacker: Attacker, honest: list[Honest]) -> None:
    """Keep the evidence back: publish on others' models without it, on a selection that nobody has, on one's own."""
    shown = attacker.own.select(model=honest[0].model)
    attacker.publish(attacker.own, parents=list(shown.parents), start=shown.aggregate.digest)
    attacker.post({"selection": "ab" * 32, "num_examples": 10_000})
    parent = attacker.own.ledger_id() if attacker.newest is None else attacker.newest.id
    attacker.newest = attacker.publish(attacker.own, parents=[parent]) or attacker.newest


def nobody(attacker: Attacker, honest: list[Honest]) -> None:
    """What happens without an attacker."""


ATTACKS: Final[dict[str, Callable[[Attacker, list[Honest]], None]]] = {
    "nobody": nobody,
    "eclipse": eclipse,
    "depth": depth,
    "flood": flood,
    "takeover": takeover,
    "burning": burning,
    "withheld": withheld,
}


@contextmanager
def served(folder: Path, candidates: str) -> Iterator[str]:
    """A new ledger with this rule of candidates, served; its address."""
    environment = {**os.environ, "PYTHONPATH": str(reporting.ROOT), **PRUNE}
    first = folder / "first.safetensors"
    arrays = {each.name: np.zeros(each.shape, np.float32) for each in LAYOUT.tensors}
    arrays["fc.weight"] += np.random.default_rng(6).normal(0, 0.05, (10, 64)).astype(np.float32)
    first.write_bytes(encode_model(LAYOUT, arrays))
    command = [sys.executable, "-m", "dag_acfl"]
    rules = folder / "genesis.toml"
    said = f'name = "bench"\ncandidates.name = "{candidates}"\naggregator.name = "trimmed-mean"\n'
    rules.write_text(f"{said}bounds.max_candidates = {NAMES - 5}\n", "utf-8")
    init = [*command, "ledger", "init", str(rules), "--model", str(first), "--data-dir", str(folder / "data")]
    subprocess.run(init, check=True, capture_output=True, cwd=folder, env=environment)
    serve = [*command, "serve", "--data-dir", str(folder / "data"), "--port", "0", "--log-level", "error"]
    with subprocess.Popen(serve, stdout=subprocess.PIPE, text=True, cwd=folder, env=environment) as process:
        assert process.stdout is not None
        try:
            said = next(line for line in process.stdout if line.startswith("serving on "))
            yield said.removeprefix("serving on ").strip()
        finally:
            process.terminate()


def play(name: str, candidates: str) -> dict[str, object]:
    """One attack on a ledger of its own."""
    began = time.monotonic()
    sites = rotated_digits(num_clients=CLIENTS, rotations=(0, 180), train_per_client=40, test_per_client=40)
    with tempfile.TemporaryDirectory() as held, served(Path(held), candidates) as url:
        keys = [Ed25519PrivateKey.generate() if each < CLIENTS // 2 else None for each in range(CLIENTS)]
        honest = [Honest(LedgerClient(url, key=key), data) for key, data in zip(keys, sites, strict=True)]
        attacker = Attacker(url, LedgerClient(url), httpx2.Client(base_url=url, timeout=30))
        for turn in range(TURNS):
            for each in honest:
                each.take_turn(turn)
                if turn >= FROM_TURN:
                    ATTACKS[name](attacker, honest)
        time.sleep(2 * float(PRUNE["DAG_ACFL_PRUNE__EVERY_S"]) + 1)
        pruned = sum(not each.client.holds(digest_of(each.model)) for each in honest if each.newest)
        lost = sum(each.newest is None or each.newest.sequence < TURNS - 1 for each in honest)
    own, asked = sum(each.own for each in honest), sum(each.selections for each in honest)
    answers = attacker.answers
    return {
        "attack": name,
        "offered": candidates,
        "requests of the attacker": len(answers),
        "refused": answers.count(False),
        "honest selections": asked,
        "own model kept": own,
        "newest honest models pruned": pruned,
        "honest publications refused": sum(each.refused for each in honest),
        "honest clients that did not get through": lost,
        "seconds": round(time.monotonic() - began),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"{', '.join(ATTACKS)}; all by default, and kept then")
    names = parser.parse_args().names or list(ATTACKS)
    if unknown := set(names) - ATTACKS.keys():
        parser.error(f"no attack {', '.join(sorted(unknown))}; there are {', '.join(ATTACKS)}")
    rows = []
    for name, candidates in itertools.product(names, ("newest", "tips")):
        rows.append(play(name, candidates))
        print(rows[-1], flush=True)
    if names == list(ATTACKS):
        table = pd.DataFrame(rows)
        RESULTS.mkdir(parents=True, exist_ok=True)
        table.to_csv(RESULTS / "summary.csv", index=False)
        commit = str(describe_environment(seed=0)["commit"])[:7]
        about = (
            f"{CLIENTS} honest clients, one after another, {TURNS} turns each, on a ledger with a trimmed mean; "
            f"from the third turn the attacker acts after each honest publication. At {commit}."
        )
        (RESULTS / "report.md").write_text(page([about, to_markdown(table)]), "utf-8")


if __name__ == "__main__":
    main()
