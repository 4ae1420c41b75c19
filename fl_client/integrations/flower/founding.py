"""Lets an app's own ServerApp found a ledger: it is run against a grid that listens, until it has said enough."""

import logging
import threading
from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any, Final

from flwr.app import Context, Error, Message, RecordDict
from flwr.serverapp import Grid

from fl_client.errors import UserModuleError
from fl_client.integrations.flower.app import FlowerApp
from fl_client.integrations.flower.opening import Opening, Request
from fl_client.training.errors import told
from fl_core.errors import DagAcflError, GenesisError

_FIRST_NODES: Final = 16
_MOST_NODES: Final = 1 << 17
_NO_REPLY: Final = Error(code=0, reason="nobody trains while a ledger is founded")


def opening_of(app: FlowerApp) -> Opening:
    """Run the ServerApp until it has sent its first train and its first evaluate message.

    It sees as many nodes as it waits for, none of which trains; what it logs of that is not shown. An evaluation of its
    own before the first round takes place.

    Raises:
        UserModuleError: It fails, or sends no arrays to be trained.
    """
    server_app, grid = app.server_app(), _ListeningGrid(app)
    logger = logging.getLogger("flwr")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    failure: Exception | None = None
    try:
        server_app(grid, Context(grid.run.run_id, 0, {}, RecordDict(), app.run_config))
    except DagAcflError:
        raise
    except SystemExit:
        pass  # the grid's own way to end it
    except Exception as error:  # noqa: BLE001 -- a strategy may insist on replies; what was sent is what counts
        failure = error
    finally:
        logger.setLevel(level)
    if grid.train is None:
        why = "it ends without a train message" if failure is None else told(failure)
        raise UserModuleError(f"{app.folder}: the ServerApp founds no ledger: {why}") from failure
    return _read_opening(app, grid.train, grid.evaluate)


class _ListeningGrid(Grid):  # type: ignore[misc]  # flwr is untyped here
    """Keeps the first train and the first evaluate message, and answers each with an error.

    SystemExit ends the ServerApp: ``except Exception`` lets it pass, and a thread of Flower's ends by it silently.
    """

    def __init__(self, app: FlowerApp) -> None:
        self.train: Message | None = None
        self.evaluate: Message | None = None
        self._app = app
        self._run = SimpleNamespace(run_id=1)
        self._nodes = _FIRST_NODES
        self._enough = False
        self._thread = threading.get_ident()
        self._replies: dict[str, Message] = {}
        _introduce_this_process()

    @property
    def run(self) -> Any:
        return self._run

    def set_run(self, run: Any) -> None:
        self._run = run

    def create_message(
        self, content: RecordDict, message_type: str, dst_node_id: int, group_id: str, ttl: float | None = None
    ) -> Message:
        return Message(content, dst_node_id, message_type, group_id=group_id, ttl=ttl)

    def get_node_ids(self) -> Iterable[int]:
        if self._enough or self.evaluate is not None:
            raise SystemExit
        nodes = range(1, 1 + self._nodes)
        if self.train is None:  # it may be waiting for more
            self._nodes *= 2
            if self._nodes > _MOST_NODES:
                raise UserModuleError(f"{self._app.folder}: the ServerApp waits for more than {self._nodes // 2} nodes")
        return list(nodes)

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        names = []
        for message in messages:
            names.append(f"{len(self._replies)}")
            self._replies[names[-1]] = self._answer(message)
        return names

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        return [self._replies.pop(name) for name in message_ids if name in self._replies]

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        del timeout
        again = self.train is not None and threading.get_ident() == self._thread
        sent = list(messages)
        if again and any(_category(message) == "train" for message in sent):
            raise SystemExit  # a second round: it does not ask clients to evaluate
        return [self._answer(message) for message in sent]

    def _answer(self, message: Message) -> Message:
        category = _category(message)
        if category == "evaluate":
            self.evaluate = self.evaluate or message
        elif category != "train":  # such as a legacy strategy, which asks a client for the initial parameters
            asked = Context(1, 1, self._app.node_config, RecordDict(), self._app.run_config)
            return self._app.client_app()(message, asked)
        elif self.train is None:
            self.train = message
        elif message.metadata.group_id != self.train.metadata.group_id:
            self._enough = True  # as above; legacy strategies send from threads, which cannot end anything
        return Message(_NO_REPLY, reply_to=message)


def _category(message: Message) -> str:
    return str(message.metadata.message_type).partition(".")[0]


def _introduce_this_process() -> None:
    """Later versions of flwr take a message's sender from the process that makes it."""
    try:
        from flwr.supercore.task_identity import TaskIdentity  # noqa: PLC0415
    except ModuleNotFoundError:
        return
    TaskIdentity.task_id = TaskIdentity.run_id = TaskIdentity.node_id = 1


def _read_opening(app: FlowerApp, train: Message, evaluate: Message | None) -> Opening:
    records = train.content.array_records
    if len(records) != 1:
        raise UserModuleError(
            f"{app.folder}: the ServerApp's first train message has {len(records)} array records, not one: "
            "secure aggregation, and strategies that send more than a model, cannot found a ledger"
        )
    (record,) = records.values()
    try:
        arrays = {str(name): array.numpy() for name, array in record.items()}
    except (TypeError, ValueError) as error:
        raise UserModuleError(f"{app.folder}: the initial arrays are none of NumPy: {error}") from error
    try:
        return Opening.of_arrays(
            arrays, train=_request(train), evaluate=None if evaluate is None else _request(evaluate)
        )
    except GenesisError as error:
        raise UserModuleError(f"{app.folder}: {error}") from error


def _request(message: Message) -> Request:
    content = message.content
    configs = {str(name): dict(record) for name, record in content.config_records.items()}
    return Request(str(message.metadata.message_type), str(next(iter(content.array_records))), configs)
