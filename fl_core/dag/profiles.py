"""The rules of a new ledger where nobody says otherwise, by its rule of authors: ``open`` or ``listed``.

What they do under attack is measured in docs/security.md.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from fl_core.dag.genesis import RULES, Bounds, Component, Genesis

SELECTOR: Final = Component("least-squares", {"min_tips": 4})
"""It chooses as BEAST does, in a tenth of the time (ADR 59). Of each author's newest, at least four are averaged where
so many resemble the asker: parts of a cluster that a cut would keep apart grow together again (ADR 57)."""

_OPEN: Final[Mapping[str, Component]] = {
    **RULES,
    "selector": SELECTOR,
    "aggregator": Component("trimmed-mean", {"trim_share": 0.34}),
    "weights": Component("equal"),
}

PROFILES: Final[Mapping[str, Mapping[str, Component]]] = {
    "open": _OPEN,
    "listed": {**_OPEN, "authors": Component("listed", {"keys_only": False})},
}
"""Each rule of genesis. Who is listed may turn bad, too, or lose its key: both trim (ADR 75)."""


@dataclass(frozen=True, slots=True)
class Protection:
    """What a ledger's rules do for those who take part, and what not, in a line each."""

    against: str
    leaves: str


def protection(genesis: Genesis) -> Protection | None:
    """By a ledger's rules of authors and of averaging; None for authors of a later version."""
    if genesis.authors.name not in PROFILES:
        return None
    against, leaves = ["steps that are too long"], []
    if genesis.aggregator.name == "fedavg":
        leaves.append("backdoors by one bad client of nine: a plain mean drops nobody")
    else:
        against.append("one bad client of nine, mostly: models count alike, of three and more the extremes are dropped")
        leaves.append("a part of accuracy to it; backdoors by two of ten, or by one beside four honest or fewer")
    if genesis.authors.name == "listed":
        against.append("strangers and many names: only listed authors publish")
    else:
        leaves.append("who comes under many names: for that, tokens or --authors listed")
    return Protection("; ".join(against), "; ".join(leaves))


def differences(genesis: Genesis) -> tuple[str, ...]:
    """The rules in which a ledger differs from its profile, by name.

    What is compared and who is chosen follow the model and the data; ``ledger inspect`` lists them.
    """
    profile = PROFILES.get(genesis.authors.name)
    if profile is None:
        return ()
    rules = ("candidates", "aggregator", "weights", "freshness", "authors")
    other = [rule for rule in rules if getattr(genesis, rule) != profile[rule]]
    steps = ("max_first_step", "max_step_growth", "max_layer_growth", "max_noise_std", "max_taint")
    return (*other, *(each for each in steps if getattr(genesis.bounds, each) != getattr(Bounds(), each)))
