"""Whose updates an author may name as parents: those of its own selection, one update of its own, or genesis.

Parents say what an update was averaged from; by ``tips`` they also hide it from others, and they lend their weight to
whatever is built upon them. So nobody names others' updates but as a selector chose them, which evidence proves. Here
is what header and evidence tell, at publish and at gossip; whose the only parent is without a selection, only a
publishing client is asked (``fl_core.dag.admission.check_publication``): who goes on in whose place may not be known.
Evidence of an average that was refused proves what was in it, and nothing about the parents.
"""

from fl_core.dag.transaction import Header
from fl_core.errors import ParentsError, TransactionInvalidError
from fl_core.selection.evidence import Evidence
from fl_core.trust.refusal import refused_in


def check_parents(header: Header, evidence: Evidence | None) -> None:
    """Ask the rule of an update's header and of the evidence that it names, None where it names none.

    Raises:
        ParentsError, TransactionInvalidError: The parents are not its author's to name.
    """
    if evidence is None:
        if len(header.parents) > 1:
            raise ParentsError("several parents need the selection that chose them; ask for one")
        return
    if evidence.ledger != header.ledger:
        raise TransactionInvalidError("the selection is of another ledger")
    if evidence.author not in (None, header.author):
        raise TransactionInvalidError("the selection was made for another author; ask for your own")
    if refused := refused_in(header):
        if len(header.parents) > 1 or not set(refused) <= set(evidence.selection.parents):
            raise ParentsError(
                "who refuses an average names updates that were in it, and one parent: its own, or genesis"
            )
    elif evidence.selection.parents != header.parents:
        raise ParentsError("the selection chose other parents than the update names")
    if evidence.selection.source == "own" and (len(header.parents) > 1 or evidence.selection.cut):
        raise ParentsError("a selection that took nothing has one parent: the asker's own update, or genesis")
