"""What a training begins from: the average that a server gave, or what ``merge`` makes of it and the own model; or the
own model, where that average does worse on the own test data. And whose models contributed to it.
"""

import logging
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from fl_client.client import LedgerClient
from fl_client.local_training import LocalTraining
from fl_client.metrics import figure_of
from fl_client.reader import GenesisInfo
from fl_client.state import ParticipantState
from fl_client.training.errors import users_code
from fl_client.training.protocol import Arrays
from fl_core.errors import DagAcflError, ParameterError
from fl_core.models import Buffer, decode_model, encode_model
from fl_core.selection.evidence import LED_BACK_FROM
from fl_core.trust.contribution import measured, to_measure
from fl_core.trust.refusal import Comparison, compare
from fl_core.types import Digest, TxId, digest_of
from fl_core.wire.v1 import SelectionOut

logger: logging.Logger = logging.getLogger(__name__)

Merge: TypeAlias = Callable[[Arrays, Arrays], Arrays]
"""The model to train, given the own newest one and the average, ω_agg; all of the ledger's layout."""


@dataclass(frozen=True, slots=True, eq=False)
class Given:
    """What a round is given.

    Attributes:
        selection: The server's answer.
        aggregate: ω_agg.
        own: The own newest model, or the one that a joiner has shown; None where it is lost.
        noise_std: The noise that the client's own trainings have added to each value of ``own``.
        rest: What stays here of the own model.
    """

    selection: SelectionOut
    aggregate: Buffer
    own: Buffer | None
    noise_std: float
    rest: Arrays


@dataclass(frozen=True, slots=True, eq=False)
class Beginning:
    """What a training begins from.

    Attributes:
        model: Encoded.
        metrics: Its figures.
        given: Figures of what was given; ``metrics``, unless that was refused.
        judged: It beside the own model; None where it is that, or nothing could be compared.
        alone: The only parent, where the average was refused.
        refused_updates: Those of others in it.
    """

    model: Buffer
    metrics: Mapping[str, float]
    given: Mapping[str, float]
    judged: Comparison | None
    alone: tuple[TxId] | None = None
    refused_updates: tuple[TxId, ...] = ()


class Beginnings:
    """One participant's."""

    def __init__(
        self,
        client: LedgerClient,
        local: LocalTraining,
        state: ParticipantState,
        *,
        merge: Merge | None,
        refuse_worse_than: float | None,
    ) -> None:
        if refuse_worse_than is not None and not refuse_worse_than >= 0:
            raise ParameterError(f"refuse_worse_than must be at least 0, or None, not {refuse_worse_than}")
        self._client, self._local, self._state = client, local, state
        self._merge, self._margin = merge, refuse_worse_than
        self._own_figures: tuple[Digest, Mapping[str, float]] | None = None  # of which model, as it is measured now
        self._told_unjudged = False

    def of(self, info: GenesisInfo, given: Given) -> Beginning:
        """What training begins from, measured."""
        selection, own = given.selection, given.own
        if LED_BACK_FROM in selection.extensions:
            logger.warning("the own newest model is quarantined or descends from what is: going on from a clean one")
            before = self._local.evaluate(info.genesis, given.aggregate, given.rest)
            return Beginning(given.aggregate, before, before, judged=None)
        start = self._merged(info, own, given.aggregate)
        before = self._local.evaluate(info.genesis, start, given.rest)
        if own is None or own == start or self._margin is None:
            return Beginning(start, before, before, judged=None)
        own_figures = self._figures_of_own(info, own, given.rest) if figure_of(before) is not None else {}
        judged = compare(own_figures, before, margin=self._margin)
        if judged is None and not self._told_unjudged:
            self._told_unjudged = True
            logger.warning("evaluate() measures neither accuracy nor loss here: no average can be refused")
        if judged is None or not judged.is_refused:
            return Beginning(start, before, before, judged)
        logger.info("refused an average: %s %.3f, own %.3f", judged.metric, judged.given, judged.own)
        newest = self._state.enter(info.ledger).transaction or info.ledger
        others = tuple(TxId(parent) for parent in selection.parents if parent != newest)
        return Beginning(own, own_figures, before, judged, alone=(newest,), refused_updates=others)

    def contributions(self, info: GenesisInfo, given: Given, beginning: Beginning) -> dict[TxId, float]:
        """What some of the others' models contributed to the average."""
        selection = given.selection
        own = None if selection.reference is None else TxId(selection.reference)
        found: dict[TxId, float] = {}
        for parent in to_measure(Digest(selection.id), [*map(TxId, selection.parents)], own=own):
            try:
                left = self._client.download(self._client.without(selection.id, parent))
            except DagAcflError as error:  # of the server, or of the way to it: the step goes on
                logger.info("cannot measure what %s… contributed: %s", parent[:16], error)
                break
            without = self._local.evaluate(info.genesis, self._merged(info, given.own, left), given.rest)
            value = measured(beginning.given, without)
            if value is not None and math.isfinite(value):
                found[parent] = value
        return found

    def note_own(self, digest: Digest, figures: Mapping[str, float]) -> None:
        """Remember what was measured of the own newest model."""
        self._own_figures = digest, figures

    def _figures_of_own(self, info: GenesisInfo, own: Buffer, rest: Arrays) -> Mapping[str, float]:
        """As this run measures it, not an earlier one: test data may have changed since."""
        digest = digest_of(own)
        if self._own_figures is None or self._own_figures[0] != digest:
            self._own_figures = digest, self._local.evaluate(info.genesis, own, rest)
        return self._own_figures[1]

    def _merged(self, info: GenesisInfo, own: Buffer | None, aggregate: Buffer) -> Buffer:
        """ω_agg, or what ``merge`` makes of it and the own model."""
        if self._merge is None or own is None or own == aggregate:
            return aggregate
        layout = info.genesis.layout
        with users_code("merge()"):
            merged = self._merge(decode_model(layout, own), decode_model(layout, aggregate))
        return encode_model(layout, merged)
