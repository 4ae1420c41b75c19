"""Which transactions may come in without their model: those that retention lets go, given what comes in with them."""

from hypothesis import given, settings
from hypothesis import strategies as st

from fl_core.dag.genesis import Policy
from fl_core.dag.graph import Node
from fl_core.ledger import Ledger
from fl_core.sync.prunable import Coming, admissible
from fl_core.types import AuthorId, TxId
from tests.builders import TinyLedger, make_genesis
from tests.reference.prunable import admissible as naive

POLICY = Policy(freshness_window=3, max_norm=100.0, max_norm_growth=2.0)
"""Genesis's norm is 2: a child of genesis may have 4, whatever its parents lack in norm."""


def empty() -> Ledger:
    return TinyLedger(genesis=make_genesis(policy=POLICY)).ledger


def coming(ledger: Ledger, drawn: str) -> list[Coming]:
    """``a.0 -> g; b.0! -> a.0``: author and sequence name a transaction; ``!`` has a model, of norm 2 if not given."""
    made = []
    for part in drawn.split(";"):
        name, _, parents = (each.strip() for each in part.partition("->"))
        name, has_model, norm = name.partition("!")
        author, sequence = name.split(".")
        above = tuple(ledger.id if parent == "g" else TxId(parent) for parent in parents.split())
        made.append(
            Coming(TxId(name), above, AuthorId(author), int(sequence), float(norm or 2.0) if has_model else None)
        )
    return made


def let_in(drawn: str, *, keep_generations: int = 1, ledger: Ledger | None = None) -> str:
    ledger = ledger or empty()
    found = admissible(ledger, coming(ledger, drawn), keep_generations=keep_generations)
    assert found == naive(ledger, coming(ledger, drawn), keep_generations=keep_generations)
    return " ".join(sorted(found))


def test_what_was_approved_and_superseded_may_come_in_bare() -> None:
    assert let_in("a.0 -> g; a.1! -> a.0") == "a.0 a.1"


def test_a_tip_without_a_model_stays_out_and_is_no_witness_for_what_it_approves() -> None:
    assert let_in("a.0 -> g; a.1 -> a.0") == ""
    assert let_in("a.0! -> g; a.1 -> a.0; b.0 -> a.1") == "a.0"


def test_an_authors_newest_must_have_its_model() -> None:
    assert let_in("a.0 -> g; b.0! -> a.0") == ""
    assert let_in("a.0 -> g; b.0! -> a.0; a.1! -> g") == "a.0 a.1 b.0"


def test_the_last_generations_must_have_their_models() -> None:
    drawn = "a.0 -> g; a.1 -> a.0; a.2! -> a.1"
    assert let_in(drawn, keep_generations=1) == "a.0 a.1 a.2"
    assert let_in(drawn, keep_generations=2) == ""
    assert let_in("a.0 -> g; a.1! -> a.0; a.2! -> a.1", keep_generations=2) == "a.0 a.1 a.2"


def test_a_superseded_tip_may_be_bare_once_it_lies_behind_the_freshness_window() -> None:
    chain = "; a.1! -> g; a.2! -> a.1; a.3! -> a.2; a.4! -> a.3"
    assert "a.0" not in let_in(f"a.0 -> g{chain}")
    assert "a.0" in let_in(f"a.0 -> g{chain}; a.5! -> a.4")


def test_what_has_no_way_to_the_ledger_is_no_witness() -> None:
    assert let_in("a.0 -> g; a.1! -> a.0 x.0") == ""


def test_a_witness_beyond_the_norm_rule_is_none() -> None:
    assert let_in("a.0! -> g; b.0 -> g; b.1!101 -> a.0 b.0") == "a.0"
    assert let_in("b.0! -> g; b.1!5 -> b.0") == "b.0", "parents of norms 2 and 2 allow 4"


def test_a_parent_whose_norm_is_unknown_bounds_its_children_by_the_absolute_bound_alone() -> None:
    assert let_in("b.0 -> g; b.1!100 -> b.0") == "b.0 b.1"
    assert let_in("b.0 -> g; b.1!101 -> b.0") == ""


def test_what_is_in_the_ledger_counts_as_a_witness() -> None:
    ledger = empty()
    ledger.add(Node(TxId("a.5"), (ledger.id,), AuthorId("a"), 5, 1, 2.0, 1))
    ledger.add(Node(TxId("c.0"), (TxId("a.5"),), AuthorId("c"), 0, 1, 2.0, 2))
    assert let_in("a.1 -> g; b.0! -> a.1", ledger=ledger) == "a.1 b.0"


@st.composite
def ledgers(draw: st.DrawFn) -> tuple[Ledger, list[Coming], int]:
    """A random DAG, a beginning of which is in the ledger."""
    ledger = empty()
    count = draw(st.integers(1, 14))
    here = draw(st.integers(0, count))
    made: list[Coming] = []
    ids = [ledger.id]
    for number in range(count):
        parents = tuple(sorted(set(draw(st.lists(st.sampled_from(ids[-5:]), min_size=1, max_size=3)))))
        norm = draw(st.one_of(st.none(), st.sampled_from([0.0, 2.0, 3.5, 7.0, 60.0])))
        author, sequence = draw(st.sampled_from("abc")), draw(st.integers(0, 4))
        each = Coming(TxId(f"{number:02}"), parents, AuthorId(author), sequence, norm)
        ids.append(each.id)
        if number < here:
            depth = ledger.graph.depth_below(parents)
            ledger.add(
                Node(each.id, parents, each.author, sequence, 1, POLICY.max_norm if norm is None else norm, depth)
            )
        else:
            made.append(each)
    return ledger, draw(st.permutations(made)), draw(st.integers(1, 4))


@given(ledgers())
@settings(max_examples=400)
def test_it_is_the_set_of_the_definition(given_: tuple[Ledger, list[Coming], int]) -> None:
    ledger, made, keep_generations = given_
    assert admissible(ledger, made, keep_generations=keep_generations) == naive(
        ledger, made, keep_generations=keep_generations
    )
