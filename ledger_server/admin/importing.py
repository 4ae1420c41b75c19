"""A whole ledger from a bundle into a server's database: one that ran elsewhere, or whose server is lost.

The bundle has been verified by who calls. What is here already stays, so that an import that was cut off goes on when
it is called again.
"""

import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import NamedTuple

from fl_core.aggregation import AGGREGATORS, Aggregator
from fl_core.aggregation.model import shares_of
from fl_core.dag.acts import MAX_ACTS, decode_signed_acts
from fl_core.dag.figures import Figures, step_from
from fl_core.dag.genesis import Genesis, parse_genesis
from fl_core.dag.signature import public_key_of
from fl_core.errors import DagAcflError
from fl_core.models import flat, model_norm
from fl_core.stored_models import average_of
from fl_core.types import ZERO_ID, Digest
from ledger_server.admin.bundle import Bundle
from ledger_server.admin.join import take_genesis
from ledger_server.keys import key_file, load_key
from ledger_server.private_files import write_private
from ledger_server.settings import Settings
from ledger_server.store import open_store_of
from ledger_server.store.evidence import ARCHIVED
from ledger_server.store.stored import StoredTransaction


class ImportRefusedError(DagAcflError):
    """The bundle cannot be taken to this server; the message says why."""

    code = "import-refused"


class Imported(NamedTuple):
    ledger: str
    transactions: int
    is_member: bool  # whether the server's key is one of the ledger's founders


def import_bundle(
    source: Bundle,
    settings: Settings,
    *,
    progress: Callable[[str, int, int], None],
    now_ms: int,
    to_view: bool = False,
) -> Imported:
    """Store what a sound bundle holds, and the founder's key that lies beside it.

    Args:
        source: The bundle.
        settings: Of the server whose database it goes to.
        progress: Called with what is being done, how much of it is done, and of how much.
        now_ms: Now, in ms since 1970.
        to_view: For looking at alone: without the key, and models or evidence may be missing; such an update's norm is
            noted as NaN.

    Raises:
        ImportRefusedError: Models of it were pruned or evidence was archived, or the key beside it is not the server's
            or not the ledger's.
        JoinError: Another ledger is here.
        StoreError: Not all is stored.
    """
    if source.is_archive or (source.archived and not to_view):
        raise ImportRefusedError(
            "it lacks evidence that was archived, or is such an archive itself; "
            "join a live server instead: dag-acfl ledger join URL"
        )
    if (source.pruned or source.checkpoints()) and not to_view:
        raise ImportRefusedError(
            f"{source.pruned} of its models were pruned, and a server needs what its peers' checkpoints say of them; "
            "join a live server instead: dag-acfl ledger join URL"
        )
    settings.data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    with open_store_of(settings) as store:
        take_genesis(source, store, expected=None, now_ms=now_ms)
        held = store.genesis()
        assert held is not None, "taken"
        genesis = parse_genesis(held[1])
        if not to_view:
            _take_key(source, settings, genesis)
        known = {each.stored_id for each in store.replay()}
        aggregator = AGGREGATORS.build(genesis.aggregator.name, genesis.aggregator.params)
        facts: dict[str, tuple[Digest, int]] = {}  # of each update, what an average takes of its header
        for done, (identity, transaction) in enumerate(source.transactions(), 1):
            progress("transactions", done, source.count)
            header = transaction.header
            facts[identity] = header.model_digest, header.num_examples
            if identity in known:
                continue
            model = _model_of(source, header.model_digest)
            figures = _figures(source, genesis, aggregator, model, [facts[each] for each in header.parents])
            evidence = None
            if header.attachment_digest != ZERO_ID:
                evidence = source.attachment(header.attachment_digest) or (ARCHIVED if to_view else None)
            packed = figures.pack() if model is None else figures.encode()
            new = StoredTransaction(len(known), transaction, packed, now_ms)
            if not store.append(new, model=model, attachment=evidence):
                raise ImportRefusedError("a server is writing to this database; stop it first")
            known.add(transaction.id)
        for act in decode_signed_acts(source.acts(), most=MAX_ACTS):
            store.keep_act(act)
    own = key_file(settings)
    is_member = own.exists() and public_key_of(load_key(own)) in {member.key for member in genesis.members}
    return Imported(source.ledger, len(known), is_member)


def _model_of(source: Bundle, digest: Digest) -> bytes | None:
    """A model's bytes; None: it was pruned."""
    size = source.model_size(digest)
    return None if size is None else source.read_model(digest, 0, size)


def _figures(
    source: Bundle,
    genesis: Genesis,
    aggregator: Aggregator,
    model: bytes | None,
    parents: Sequence[tuple[Digest, int]],
) -> Figures:
    """Those of an update; without its model or a parent's, what the rest tells."""
    shares = shares_of(genesis, aggregator, [count for _, count in parents])
    if model is None:
        return Figures(math.nan, None, shares)
    vector = flat(genesis.layout, model)
    if any(source.model_size(digest) is None for digest, _ in parents):
        return Figures(model_norm(vector), None, shares)
    average = flat(genesis.layout, average_of(source, genesis, aggregator, parents))
    return Figures(model_norm(vector), step_from(average, vector, layout=genesis.layout), shares)


def _take_key(source: Bundle, settings: Settings, genesis: Genesis) -> None:
    """Make the founder's key that lies beside the bundle the server's, if there is one."""
    own = key_file(settings)
    beside = source.path.with_name(f"{source.path.name}.key")
    if not beside.exists():
        return
    key = public_key_of(load_key(beside))
    if key not in {member.key for member in genesis.members}:
        raise ImportRefusedError(f"{beside} is not the key of a founder of this ledger; move it away")
    if own.exists() and public_key_of(load_key(own)) != key:
        raise ImportRefusedError(f"{own} is another key than {beside}; move one of the two away")
    with suppress(FileExistsError):
        write_private(own, beside.read_bytes())
