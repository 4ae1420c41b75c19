"""Which models virtual servers keep."""

import numpy as np

from fl_simulator.ledgers.network import LocalUpdate, VirtualServers
from fl_simulator.seeds import Seeds
from tests.builders import START, make_genesis


def test_pruning_keeps_genesis_each_authors_newest_and_what_it_is_asked_to_keep() -> None:
    servers = VirtualServers(make_genesis(), np.zeros(4, np.float32), seeds=Seeds(0), num_clients=1)
    chain = [servers.id]
    for value in range(1, 5):
        update = LocalUpdate(0, np.full(4, value, np.float32), (chain[-1],), 1, START)
        chain += servers.publish([update], now=value)
    servers.prune(keep=[chain[2]])
    assert [servers.record.get(each) is not None for each in chain] == [True, False, True, False, True]
    servers.prune()
    assert [servers.record.get(each) is not None for each in chain] == [True, False, False, False, True]
    servers.close()
