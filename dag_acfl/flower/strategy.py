"""The Flower strategy: FedAvg, but each node is sent the average of the models that resemble its own.

A round of Flower is a round of DAG-ACFL [Alg. 1]: all who are sampled ask, all see the ledger as the round before left
it, all train, and each reply is published. A node that is asked for the first time trains the initial arrays.
"""

import logging
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import FedAvg, Result
from numpy.typing import NDArray

from dag_acfl.commands.ledger.init import FirstModel
from dag_acfl.flower.ledger import LocalLedger, Start
from dag_acfl.summary import clusters_of
from fl_client.integrations.flower.opening import Opening, Request
from fl_client.integrations.flower.trainer import figures_of, known_first, trained_arrays
from fl_client.metrics import Measurements
from fl_core.errors import DagAcflError, ParameterError
from fl_core.models import decode_model, encode_model
from fl_core.types import TxId
from ledger_server.admin.bundle import write_bundle
from ledger_server.private_files import write_private

logger = logging.getLogger("flwr")


class DagAcfl(FedAvg):  # type: ignore[misc]  # flwr is untyped here
    """Sends each node its own aggregate, and keeps a ledger of what they trained.

    What ``start`` returns is as FedAvg's: ``arrays`` is the average of all replies, and what nobody was sent.

    Args:
        rules: Of the ledger, where they are not the defaults: as ``dag-acfl ledger init`` reads them from TOML, such as
            ``{"name": "pilot", "selector": {"name": "beast", "alpha": 0.5}}``.

    All others are FedAvg's.

    Attributes:
        node_metrics: Of each node, the figures of its last evaluation: of what it was sent, on its own data.
    """

    def __init__(self, *args: Any, rules: Mapping[str, Any] | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.node_metrics: dict[int, dict[str, float]] = {}
        self._rules = {"name": "flower", **(rules or {})}
        self._founded: tuple[Opening, LocalLedger] | None = None
        self._sent: dict[int, Start] = {}
        self._kept: dict[int, dict[str, NDArray[Any]]] = {}
        self._evaluated: dict[int, dict[str, float]] = {}
        self._measurements = Measurements()

    def start(  # noqa: PLR0917 (as Strategy's)
        self,
        grid: Grid,
        initial_arrays: ArrayRecord,
        num_rounds: int = 3,
        timeout: float = 3600,
        train_config: ConfigRecord | None = None,
        evaluate_config: ConfigRecord | None = None,
        evaluate_fn: Any = None,
    ) -> Result:
        """See ``Strategy.start``; founds a new ledger with the initial arrays."""
        opening = Opening.of_arrays(
            {str(name): array.numpy() for name, array in initial_arrays.items()},
            train=self._request("train", train_config),
            evaluate=self._request("evaluate", evaluate_config) if self.fraction_evaluate else None,
        )
        first = FirstModel(opening.initial, opening.layout, opening.statistics, hints=opening.as_hints())
        self._founded = opening, LocalLedger(self._rules, first)
        for of_nodes in (self.node_metrics, self._sent, self._kept, self._evaluated):
            of_nodes.clear()
        result = super().start(grid, initial_arrays, num_rounds, timeout, train_config, evaluate_config, evaluate_fn)
        logger.info("Nodes that learnt together: %s", self.clusters())
        return result

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """See ``Strategy.configure_train``; to each node what ``arrays_of`` says."""
        messages = self._addressed(super().configure_train(server_round, arrays, config, grid))
        self._sent = {each.metadata.dst_node_id: self._ledger.start_of(each.metadata.dst_node_id) for each in messages}
        return messages

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """See ``Strategy.aggregate_train``; replies that the ledger refuses are left out, with a warning."""
        taken = [reply for reply in replies if reply.has_error() or self._is_published(reply)]
        self._evaluated.clear()
        arrays, metrics = super().aggregate_train(server_round, taken)
        return arrays, metrics

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """See ``Strategy.configure_evaluate``; to each node what ``arrays_of`` says."""
        return self._addressed(super().configure_evaluate(server_round, arrays, config, grid))

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        """See ``Strategy.aggregate_evaluate``; keeps each node's own figures."""
        came = list(replies)
        for reply in came:
            if not reply.has_error():
                figures = figures_of(reply)
                figures.pop(self.weighted_by_key, None)
                measured = self._measurements.finite(known_first(figures, {}), of="evaluate")
                self.node_metrics[reply.metadata.src_node_id] = measured
                self._evaluated[reply.metadata.src_node_id] = measured
        return super().aggregate_evaluate(server_round, came)

    def arrays_of(self, node_id: int) -> ArrayRecord:
        """What a node is sent now: the average of the models that resemble its own, or the initial arrays.

        Arrays that are no floats are the node's own.
        """
        start = self._ledger.start_of(node_id)
        travels = decode_model(self._opening.layout, start.model)
        arrays = self._opening.given_out(travels, {**self._opening.kept, **self._kept.get(node_id, {})})
        return ArrayRecord({name: Array(array) for name, array in arrays.items()})

    def clusters(self) -> list[list[int]]:
        """The nodes that have learnt together: Louvain's communities of who was averaged with whom."""
        headers = {each: transaction.header for each, transaction in self._ledger.record.transactions()}
        updates = {TxId(each): header for each, header in headers.items() if header.parents}
        node_of = self._ledger.client_of
        return [sorted(node_of[author] for author in group) for group in clusters_of(updates)[1]]

    def export(self, file: Path | str) -> Path:
        """Write the ledger as a bundle, and beside it the founder's key, by which a server goes on with it.

        ``dag-acfl ledger verify FILE`` proves it, ``dag-acfl ledger import FILE`` takes it to a server. The nodes' own
        keys are nowhere kept: nobody can publish in their names again.
        """
        path = Path(file).absolute()
        count = write_bundle(self._ledger.record, path)
        key = path.with_name(f"{path.name}.key")
        key.unlink(missing_ok=True)
        write_private(key, self._ledger.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
        logger.info("%d transactions in %s; take them to a server with: dag-acfl ledger import %s", count, path, path)
        return path

    @property
    def _opening(self) -> Opening:
        return self._open()[0]

    @property
    def _ledger(self) -> LocalLedger:
        return self._open()[1]

    def _open(self) -> tuple[Opening, LocalLedger]:
        if self._founded is None:
            raise ParameterError("DagAcfl has no ledger before its own start(): call that, not that of a wrapper")
        return self._founded

    def _request(self, kind: str, config: ConfigRecord | None) -> Request:
        return Request(kind, self.arrayrecord_key, {self.configrecord_key: {**(config or {}), "server-round": 1}})

    def _addressed(self, messages: Iterable[Message]) -> list[Message]:
        """FedAvg's messages, each with its node's own arrays."""
        addressed = list(messages)
        for message in addressed:
            own = {self.arrayrecord_key: self.arrays_of(message.metadata.dst_node_id)}
            message.content = RecordDict({**message.content, **own})
        return addressed

    def _is_published(self, reply: Message) -> bool:
        node_id = reply.metadata.src_node_id
        trained = self._measurements.finite(figures_of(reply), of="train")
        num_examples = max(1, int(trained.pop(self.weighted_by_key, 1)))
        try:
            travels, stays = self._opening.taken_in(trained_arrays(reply))
            self._ledger.publish(
                node_id,
                self._sent[node_id],
                encode_model(self._opening.layout, travels),
                num_examples=num_examples,
                metrics=self._measurements.published(self._evaluated.get(node_id, {}), trained),
            )
        except DagAcflError as error:
            logger.warning("the reply of node %d is left out: %s", node_id, error)
            return False
        self._kept[node_id] = stays
        return True
