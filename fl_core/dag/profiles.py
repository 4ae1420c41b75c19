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
    """What a ledger's rules protect who takes part against, and what they leave, in a line each."""

    against: str
    leaves: str


def protection(genesis: Genesis) -> Protection | None:
    """What is known of a ledger's rules; None for authors of a later version.

    Of one bad client the profiles' rules and plain means were measured (docs/security.md), and no others.
    """
    if genesis.authors.name not in PROFILES:
        return None
    against, leaves = list[str](), list[str]()
    if genesis.bounds.limit_steps:
        against.append("steps that are too long")
    if genesis.aggregator.name == "fedavg":
        leaves.append("one bad client of nine: its backdoor and some of the accuracy, for a plain mean drops nobody")
    elif {"selector", "candidates", "aggregator"} & {*differences(genesis)}:
        leaves.append("one bad client: not measured with these rules")
    else:
        against.append("one bad client of nine, mostly: models count alike, of three and more the extremes are dropped")
        leaves.append("a part of the accuracy to it; backdoors by two of ten, or by one beside four honest or fewer")
    if genesis.authors.name == "listed":
        against.append("strangers and many names: only listed authors publish")
    else:
        leaves.append("who comes under many names: for that, tokens or --authors listed")
    return Protection("; ".join(against) or "nothing of this", "; ".join(leaves))


def differences(genesis: Genesis) -> tuple[str, ...]:
    """The rules where a ledger differs from its profile, by name, but for what is compared, which follows the model."""
    profile = PROFILES.get(genesis.authors.name)
    if profile is None:
        return ()
    rules = ("selector", "candidates", "aggregator", "weights", "freshness", "authors")
    other = [rule for rule in rules if not _is_as(getattr(genesis, rule), profile[rule])]
    steps = ("max_first_step", "max_step_growth", "max_layer_growth", "max_noise_std", "max_taint")
    return (*other, *(each for each in steps if getattr(genesis.bounds, each) != getattr(Bounds(), each)))


def _is_as(rule: Component, profile: Component) -> bool:
    """A ledger writes out the parameters that a profile leaves to the selector's defaults; those are not compared."""
    return rule.name == profile.name and profile.params.items() <= rule.params.items()
