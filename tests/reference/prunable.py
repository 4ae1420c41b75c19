"""The definition of ``fl_core.sync.prunable``, step by step: look at everything again after each removal."""

from collections.abc import Iterable

from fl_core.dag.admission import NORM_SLACK, check_norm
from fl_core.errors import ModelNormError
from fl_core.ledger import Ledger
from fl_core.sync.prunable import Coming
from fl_core.types import TxId


def admissible(ledger: Ledger, coming: Iterable[Coming], *, keep_generations: int) -> set[TxId]:
    given = {each.id: each for each in coming if each.id not in ledger}
    while True:
        entered = _entered(ledger, given)
        kept = _kept(ledger, entered, keep_generations)
        faulty = [each for each in entered if entered[each][0].norm is None and each in kept]
        if not faulty:
            return set(entered)
        for each in faulty:
            del given[each]


def _entered(ledger: Ledger, given: dict[TxId, Coming]) -> dict[TxId, tuple[Coming, int]]:
    """What has its parents and fits their norms, with its depth."""
    policy = ledger.genesis.policy
    depth = {node.id: node.depth for node in ledger}
    norm = {node.id: node.norm for node in ledger}
    entered: dict[TxId, tuple[Coming, int]] = {}
    refused: set[TxId] = set()
    changed = True
    while changed:
        changed = False
        for each in given.values():
            if each.id in depth or each.id in refused or any(parent not in depth for parent in each.parents):
                continue
            changed = True
            parents = [norm[parent] for parent in each.parents]
            first = ledger.graph.genesis.norm
            try:
                if each.norm is not None:
                    check_norm(
                        each.norm, parent_norms=parents, genesis_norm=first, genesis=ledger.genesis, slack=NORM_SLACK
                    )
            except ModelNormError:
                refused.add(each.id)
                continue
            norm[each.id] = policy.max_norm if each.norm is None else each.norm
            depth[each.id] = 1 + max(depth[parent] for parent in each.parents)
            entered[each.id] = (each, depth[each.id])
    return entered


def _kept(ledger: Ledger, entered: dict[TxId, tuple[Coming, int]], keep_generations: int) -> set[TxId]:
    """ADR 0016: genesis, authors' newest, fresh tips, the last generations."""
    rows = [(node.id, node.parents, node.author, node.sequence, node.depth) for node in ledger]
    rows += [(each.id, each.parents, each.author, each.sequence, depth) for each, depth in entered.values()]
    deepest = max(row[4] for row in rows)
    approved = {parent for row in rows for parent in row[1]}
    kept = set()
    for identity, _, author, sequence, depth in rows:
        is_fresh_tip = identity not in approved and depth >= max(deepest - ledger.genesis.policy.freshness_window, 1)
        others = [(row[3], row[0]) for row in rows if row[2] == author and row[1]]
        is_newest = (sequence, identity) == max(others, default=(sequence, identity))
        if depth > deepest - keep_generations or is_fresh_tip or is_newest:
            kept.add(identity)
    return kept
