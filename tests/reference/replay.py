"""A rebuilt question, slowly: a new ledger for each, and cosines by the formula."""

from collections.abc import Mapping, Sequence

from fl_core.dag.genesis import Genesis
from fl_core.dag.transaction import Transaction
from fl_core.ledger import Ledger
from fl_core.models import flat, similarity_vector
from fl_core.similarity import cosine
from fl_core.types import Digest, TxId


def rebuilt(
    genesis: Genesis, transactions: Sequence[Transaction], models: Mapping[Digest, bytes], place: int
) -> dict[TxId, tuple[float, float]] | None:
    """Candidates with their two similarities, for the transaction of this place; None for an author's first."""
    asking = transactions[place]
    own = [each for each in transactions[1:place] if each.header.author == asking.header.author]
    if not own:
        return None
    newest = max(own, key=lambda each: (each.header.sequence, each.id))
    places = {each.id: at for at, each in enumerate(transactions)}
    moment = max(places[each] for each in (*asking.header.parents, newest.id))
    ledger = Ledger(genesis, transactions[0], genesis_norm=0.0)
    for each in transactions[1 : moment + 1]:
        ledger.restore(each, norm=0.0)
    taken = [
        transactions[places[parent]]
        for parent in asking.header.parents
        if places[parent] and transactions[places[parent]].header.author != asking.header.author
    ]
    whose = {each.header.author for each in taken}
    offered = {each.transaction for each in ledger.candidates(asking.header.author) if each.author not in whose}
    vectors = {
        each.id: similarity_vector(
            genesis.layout, flat(genesis.layout, models[each.header.model_digest]), genesis.similarity_layers
        )
        for each in transactions
    }
    first, mine = vectors[transactions[0].id], vectors[newest.id]
    return {
        each: (cosine(mine, vectors[each]), cosine(mine - first, vectors[each] - first))
        for each in offered | {each.id for each in taken}
    }
