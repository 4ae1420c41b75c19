"""Packing: models that were superseded long ago are kept coded by their authors' next ones.

The newest model of each author stays whole, since everybody asks for it; what is read of the past is put together again
(``Store.model``), of at most ``MAX_CHAIN`` models: every so many is coded by none. By the next and not by the one
before, because the newest is what is needed whole, and the oldest what goes first.

What is packed says by which other model it is, so nothing here is needed to read it. A pass that is cut short is gone
on with by the next; pruning (``ledger_server.pruning``) unpacks what it would leave without its base.
"""

import time
from collections.abc import Callable
from typing import Final

from fl_core.models import ModelLayout
from fl_core.step_coding import decode_step, encode_step
from fl_core.types import ZERO_ID, AuthorId, Digest, digest_of
from ledger_server.store.journal import Store

MAX_CHAIN: Final = 8
"""Models that a packed one is put together by, at most, itself among them: 0.4 s of a core for one of 13 MB."""
_PAGE: Final = 100
_WORTH: Final = 0.9
"""Of a model's size: what packs to more stays whole."""


def pack(
    store: Store,
    layout: ModelLayout,
    *,
    before_ms: int,
    stop: Callable[[], bool] = lambda: False,
    rest: Callable[[float], object] = lambda _: None,
) -> int:
    """Pack the models whose authors' next ones came before this server's time ``before_ms``; returns how many.

    Args:
        store: The journal.
        layout: The ledger's.
        before_ms: Milliseconds since 1970 UTC.
        stop: Asked before each.
        rest: Waits some seconds, after each as long as that took: publications have the other half of the time.

    Raises:
        StoreError: The next pass goes on.
    """
    packed, after = 0, -1
    last: dict[AuthorId, Digest] = {}
    while page := store.to_pack(after=after, limit=_PAGE):
        for stored in page:
            if stop() or stored.received_at_ms >= before_ms:
                return packed
            after = stored.arrival
            if not stored.node.parents:
                continue  # genesis
            author, digest = stored.transaction.header.author, stored.transaction.header.model_digest
            earlier = last.get(author)
            last[author] = digest
            if earlier is not None and earlier != digest:
                began_s = time.monotonic()
                packed += _pack_one(store, layout, earlier, digest)
                rest(time.monotonic() - began_s)
    return packed


def _pack_one(store: Store, layout: ModelLayout, digest: Digest, following: Digest) -> bool:
    model = store.model(digest)
    if model is None or digest_of(model) != digest:
        return False
    by, base = Digest(ZERO_ID), None
    if _chain_below(store, digest) < MAX_CHAIN:
        by, base = following, store.model(following)
        if base is None or digest_of(base) != by:
            return False
    coded = encode_step(layout, model, base, base_digest=by)
    if len(coded) > _WORTH * len(model) or decode_step(layout, coded, base) != model:
        return False
    return store.pack(digest, coded, base=by)


def _chain_below(store: Store, digest: Digest) -> int:
    """How many models are put together by this one, one by another, itself among them."""
    length, level = 1, [digest]
    while (level := store.packed_by(level)) and length < MAX_CHAIN:
        length += 1
    return length
