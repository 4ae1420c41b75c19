"""DAG-ACFL without rounds, as it is meant (Sec. III-C): who has finished publishes, and asks again at once.

A question is answered from what the client's server has when it arrives, other servers' transactions as far as gossip
has brought them; a client publishes on the server that answered it. Its first work is to train E′ epochs on what
``join`` says, which sends nothing; then it asks, with the model that came of it, as in rounds. Bytes are counted as in
rounds, and the genesis model that a joiner fetches besides.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np

from fl_core.types import Digest, TxId, Vector32
from fl_simulator.engine.world import Clients, World
from fl_simulator.ledgers.network import LocalUpdate
from fl_simulator.strategies.asynchronous.protocol import Assignment
from fl_simulator.strategies.ledger.dag_acfl import DagAcflClients, DagAcflParams
from fl_simulator.strategies.protocol import HASH_BYTES, Choice, PersonalizedModels, State, Traffic

_PUBLICATIONS_TO_PRUNE: Final = 16
"""Looking for models that nobody needs takes longer than publishing; that many more are kept at most."""


class AsynchronousDagAcfl(DagAcflClients):
    """DAG-ACFL in virtual time; ``choices`` are those of the interval, in order of asking."""

    def __init__(self, params: DagAcflParams, world: World) -> None:
        super().__init__(params, world)
        self._parents: dict[int, tuple[TxId, ...]] = {}  # of clients at work, what they were given
        self._digests: dict[int, Digest] = {}  # of clients at work, of the models that they began from
        self.begin_interval()

    def begin_interval(self) -> None:
        self.traffic = Traffic()
        self._collected: list[Choice] = []
        self.choices: list[Choice] = self._collected

    def question_bytes(self, client: int) -> int:
        """The hash of its newest transaction; a joiner's model besides, and nothing of one that has none yet."""
        if self.servers.newest(client) is not None:
            return HASH_BYTES
        return HASH_BYTES + self._world.model_bytes if client in self._joined else 0

    def model_of(self, client: int) -> Vector32 | None:
        """The model by which a client is compared: the one that it published last, or joins with; None before that."""
        newest = self.servers.newest(client)
        return self._joined.get(client) if newest is None else newest

    def parents_of(self, client: int) -> tuple[TxId, ...]:
        """The transactions whose mean a client at work was answered with; none while it trains to join."""
        return self._parents.get(client, ())

    def start(self, client: int, *, now: float) -> Assignment:
        self._arrive_until(now)
        size, question = self._world.model_bytes, self.question_bytes(client)
        if not question:
            self._parents.pop(client, None)
            fetched = size if self._params.own.join == "genesis" else 0
            self.traffic += Traffic(down=fetched)
            return Assignment(
                self._joiner_model(client), down_bytes=fetched, up_bytes=0, epochs=self._world.training.initial_epochs
            )
        self._roam([client])
        # Answers of ``personal`` come of one product for many: float32's rounding must not let a look change a run.
        self._answers.pop(client, None)
        selection = self._select([client])[client]
        self._collected.append(self._choice(client, selection))
        decided, starts = self._begin([client], {client: selection})
        self._count_refusals(decided)
        selection = decided[client]
        self._parents[client] = selection.parents
        self.traffic += Traffic(up=question, down=size)
        (model,) = starts.models
        (self._digests[client],) = self.servers.digests([model])
        return Assignment(model, down_bytes=size, up_bytes=size)

    def finish(self, client: int, model: Vector32, *, now: float) -> None:
        self._arrive_until(now)
        parents = self._parents.pop(client, None)
        if parents is None:
            self._joined[client] = model
            return
        with self._world.stopwatch.measure("ledger"):
            examples, start = int(self._world.population.num_examples[client]), self._digests.pop(client)
            self.servers.publish([LocalUpdate(client, model, parents, examples, start)], now=now)
            if len(self.servers.record) % _PUBLICATIONS_TO_PRUNE == 0:
                at_work = self._parents.values() if self.servers.genesis.bounds.limit_steps else ()
                self._prune(keep=(parent for parents in at_work for parent in parents))
        self._joined.pop(client, None)
        self._answers.clear()
        self.traffic += Traffic(
            up=self._world.model_bytes,
            down=HASH_BYTES,
            between_servers=(self._params.own.servers - 1) * self._transaction_bytes(),
        )

    def _arrive_until(self, now: float) -> None:
        self._pass_judgement(now)
        if self.servers.advance(now):
            self._answers.clear()

    def personal(self, clients: Sequence[int] | Clients, *, now: float) -> PersonalizedModels:
        """See ``AsynchronousStrategy.personal``; one with nothing to ask with would begin with genesis."""
        self._arrive_until(now)
        self._answers.clear()
        return self._personal(clients)

    def state(self) -> State:
        place = {transaction: index for index, transaction in enumerate(self.servers.record)}
        parents = [[place[each] for each in those] for those in self._parents.values()]
        return {
            **super().state(),
            "joined.clients": np.array(list(self._joined), dtype=np.int64),
            "joined.models": np.array(list(self._joined.values()), dtype=np.float32).reshape(
                -1, len(self._genesis_model)
            ),
            "asked.clients": np.array(list(self._parents), dtype=np.int64),
            "asked.starts": np.array([self._digests[client] for client in self._parents], dtype="U64"),
            "asked.parents": np.array([each for those in parents for each in those], dtype=np.int64),
            "asked.ends": np.cumsum([len(those) for those in parents], dtype=np.int64),
        }

    def restore(self, state: State) -> None:
        super().restore(state)
        self._joined = dict(zip(state["joined.clients"].tolist(), state["joined.models"].copy(), strict=True))
        order, ends = list(self.servers.record), state["asked.ends"].tolist()
        places, clients = state["asked.parents"].tolist(), state["asked.clients"].tolist()
        self._parents = {
            client: tuple(order[place] for place in places[start:end])
            for client, start, end in zip(clients, [0, *ends], ends, strict=False)
        }
        self._digests = dict(zip(clients, map(Digest, state["asked.starts"].tolist()), strict=True))
        self.begin_interval()
