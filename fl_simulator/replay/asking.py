"""Asks other selectors what a ledger's own was asked, and notes what each would have taken."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import islice
from typing import Final, TypeAlias

from fl_core.clusters import satisfaction_rate
from fl_core.dag.genesis import Component
from fl_core.errors import ParameterError
from fl_core.selection import SELECTORS, build_selector
from fl_core.types import AuthorId, TxId
from fl_core.verify import LedgerSource
from fl_simulator.ledgers import Chooser
from fl_simulator.replay.errors import ReplayError
from fl_simulator.replay.history import read_history
from fl_simulator.replay.questions import Question, Skipped, questions

LEDGERS_OWN: Final = "ledger"
"""Stands for the selector that genesis names, with its parameters."""

WALKS: Final = frozenset({"sdagfl", "biased-walk", "accuracy-walk"})
"""Names under which somebody may look for SDAGFL's rule."""

_BATCH: Final = 128
"""Questions that are held at once, so that processes can share them."""

Truth: TypeAlias = Mapping[AuthorId, int]
Progress: TypeAlias = Callable[[str, int, int], None]


@dataclass(frozen=True, slots=True)
class Choice:
    """What was taken of others' tips; the client's own, which every selector takes, is left out.

    Attributes:
        taken: Ascending; empty where the client kept its own model.
        authors: Of each.
        satisfaction: Eq. 7; None without true clusters, or where the client's own cluster had no tip.
        foreign: How many are of another true cluster; None without true clusters.
    """

    taken: tuple[TxId, ...]
    authors: tuple[AuthorId, ...]
    satisfaction: float | None
    foreign: int | None

    def agreement(self, other: "Choice") -> float:
        """Jaccard: what both took, of what either took; 1 where both took nothing."""
        mine, others = set(self.taken), set(other.taken)
        return len(mine & others) / len(mine | others) if mine or others else 1.0


@dataclass(frozen=True, slots=True)
class Replayed:
    """One selection, asked again.

    Attributes:
        place: The transaction's in the order of admission; the first after genesis is 1.
        transaction: What was published upon it.
        author: Who asked.
        from_evidence: Whether the question is the evidence's, or rebuilt.
        shortened: Whether the evidence may have left out candidates of low rank.
        offered: How many candidates there were.
        ledger: What the ledger's own selector took.
        choices: What each of the other selectors takes, in their order.
    """

    place: int
    transaction: TxId
    author: AuthorId
    from_evidence: bool
    shortened: bool
    offered: int
    ledger: Choice
    choices: tuple[Choice, ...]


@dataclass(frozen=True, slots=True)
class Replay:
    """A ledger's selections, in the order of admission.

    Attributes:
        ledger: Its id.
        name: What people call it.
        own: Its own selector, with its parameters.
        selectors: The others, likewise.
        replayed: What could be asked again.
        skipped: What could not.
        truth: Each author's true cluster, where the caller knew.
    """

    ledger: TxId
    name: str
    own: str
    selectors: tuple[str, ...]
    replayed: tuple[Replayed, ...]
    skipped: tuple[Skipped, ...]
    truth: Truth | None = field(default=None, repr=False)


def replay(
    source: LedgerSource,
    selectors: Sequence[Component],
    *,
    truth: Truth | None = None,
    workers: int = 1,
    progress: Progress | None = None,
) -> Replay:
    """Ask each selector what the ledger's own was asked.

    Args:
        source: The ledger; models and attachments are read when they are needed.
        selectors: Names and parameters; ``LEDGERS_OWN`` without parameters is the ledger's.
        truth: Each author's true cluster, to judge choices by; they never decide. None: choices are not judged.
        workers: Processes that share BEAST's work; what is answered does not depend on it.
        progress: Called with what is being done, how far it is, and its end (0: not known).

    Raises:
        UnknownNameError, ParameterError: A selector or a parameter does not exist, or the selector is a walk.
        GenesisError: The ledger has no genesis, or a damaged one.
        ReplayError: The ledger is damaged, or ``truth`` lacks an author.
    """
    for selector in selectors:
        _check(selector)
    tell = progress or (lambda _what, _done, _whole: None)
    whole = source.count
    history = read_history(source, progress=lambda done: tell("reading", done, whole))
    if truth is not None:
        require_truth(truth, (site.node.author for site in history.sites))
    own = history.genesis.selector
    replayed: list[Replayed] = []
    skipped: list[Skipped] = []
    with ExitStack() as stack:
        choosers = [Chooser(own if each.name == LEDGERS_OWN else each, workers=workers) for each in selectors]
        for chooser in choosers:
            stack.callback(chooser.close)
        for batch in _batched(questions(source, history), _BATCH):
            asked = [each for each in batch if isinstance(each, Question)]
            skipped += [each for each in batch if isinstance(each, Skipped)]
            answers = [chooser.choose([each.request for each in asked]) for chooser in choosers]
            for at, question in enumerate(asked):
                chosen = [[each.transaction for each in those[at].candidates if each.selected] for those in answers]
                replayed.append(_replayed(question, chosen, truth))
            tell("asking", len(replayed) + len(skipped), len(history.sites))
    return Replay(
        ledger=history.first.id,
        name=history.genesis.name,
        own=describe(own),
        selectors=tuple(map(describe, selectors)),
        replayed=tuple(sorted(replayed, key=lambda each: each.place)),
        skipped=tuple(sorted(skipped, key=lambda each: each.place)),
        truth=truth,
    )


def describe(selector: Component) -> str:
    """Name and given parameters, such as ``beast alpha=0.3 rule=literal``."""
    return " ".join([selector.name, *(f"{name}={value}" for name, value in sorted(selector.params.items()))])


def require_truth(truth: Truth, authors: Iterable[AuthorId]) -> None:
    """See that everybody's true cluster is known.

    Raises:
        ReplayError: Somebody's is not.
    """
    if lacking := {author for author in authors if author not in truth}:
        more = f" and {len(lacking) - 1} more" if len(lacking) > 1 else ""
        raise ReplayError(f"the true clusters lack author {min(lacking)}{more}")


def _check(selector: Component) -> None:
    if selector.name == LEDGERS_OWN:
        if selector.params:
            raise ParameterError(f"selector {LEDGERS_OWN!r} is the ledger's own, with the ledger's own parameters")
    elif selector.name in WALKS:
        raise ParameterError(
            f"{selector.name!r} rates models on the asking client's samples, which no ledger holds, so it cannot be "
            f"replayed; simulate it (strategy sdagfl), or replay one of: {', '.join(sorted(SELECTORS))}"
        )
    else:
        build_selector(selector.name, selector.params)


def _batched(items: Iterator[Question | Skipped], size: int) -> Iterator[list[Question | Skipped]]:
    while batch := list(islice(items, size)):
        yield batch


def _replayed(question: Question, chosen: Sequence[Sequence[TxId]], truth: Truth | None) -> Replayed:
    authors = {each.transaction: each.author for each in question.request.candidates}
    client = question.site.node.author
    if truth is not None:
        require_truth(truth, authors.values())

    def choice(taken: Iterable[TxId]) -> Choice:
        those = tuple(sorted(taken))
        whose = tuple(authors[each] for each in those)
        if truth is None:
            return Choice(those, whose, None, None)
        mates = {each for each in authors.values() if each != client and truth[each] == truth[client]}
        foreign = sum(truth[each] != truth[client] for each in whose)
        return Choice(those, whose, satisfaction_rate(set(whose), set(authors.values()), mates), foreign)

    return Replayed(
        place=question.site.place,
        transaction=question.site.node.id,
        author=client,
        from_evidence=question.site.evidence is not None,
        shortened=question.shortened,
        offered=len(authors),
        ledger=choice(question.taken),
        choices=tuple(map(choice, chosen)),
    )
