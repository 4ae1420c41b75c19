"""The kinds of ledger that ``dag-acfl ledger init --authors`` makes: what holds in each where nobody says otherwise.

A profile is nothing but values of genesis, by the name of its rule of authors. What it does under attack is measured in
docs/security.md.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from fl_core.dag.genesis import RULES, Bounds, Component, Genesis


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """Values of genesis that belong together.

    Attributes:
        rules: Each rule of genesis.
        protects: What it does for those who take part, in a line.
        leaves: What it does not, in a line.
    """

    rules: Mapping[str, Component]
    protects: str
    leaves: str


SELECTOR: Final = Component("least-squares", {"min_tips": 4})
"""It chooses as BEAST does, in a tenth of the time (ADR 59). Of each author's newest, at least four are averaged where
so many resemble the asker: parts of a cluster that a cut would keep apart grow together again (ADR 57)."""

_SAFE: Final[Mapping[str, Component]] = {
    **RULES,
    "selector": SELECTOR,
    "aggregator": Component("trimmed-mean", {"trim_share": 0.34}),
    "weights": Component("equal"),
}
"""Rules of every new ledger: who is let in may turn bad, or be robbed of its key (ADR 75)."""

PROFILES: Final[Mapping[str, Profile]] = {
    "open": Profile(
        rules=_SAFE,
        protects="one bad client among many: models count alike, of three and more the extremes are dropped, steps are "
        "bounded",
        leaves="backdoors by two attackers of ten, or by one beside four honest clients or fewer; who comes under many "
        "names: for that, tokens or --authors listed",
    ),
    "listed": Profile(
        rules={**_SAFE, "authors": Component("listed", {"keys_only": False})},
        protects="strangers and many names: only listed authors publish; one bad client among many, as open ledgers do",
        leaves="backdoors by two listed clients of ten, or by one beside four honest clients or fewer",
    ),
}


def profile_of(genesis: Genesis) -> Profile | None:
    """The profile that a ledger's rule of authors belongs to; None for a rule of a later version."""
    return PROFILES.get(genesis.authors.name)


def differences(genesis: Genesis) -> tuple[str, ...]:
    """The rules in which a ledger differs from its profile, by name; what is compared and how is chosen apart.

    Those two follow the model and the data, and no attacker gains by them.
    """
    profile = profile_of(genesis)
    if profile is None:
        return ()
    rules = ("candidates", "aggregator", "weights", "freshness", "authors")
    other = [rule for rule in rules if getattr(genesis, rule) != profile.rules[rule]]
    steps = ("max_first_step", "max_step_growth", "max_layer_growth", "max_noise_std", "max_taint")
    return (*other, *(each for each in steps if getattr(genesis.bounds, each) != getattr(Bounds(), each)))
