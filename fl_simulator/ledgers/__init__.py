"""Ledger servers in virtual time: the core's node and signatures, without sockets and clocks.

``server`` is one node that receives transactions in any order, ``network`` several of them and what travels between,
``choosing`` answers many clients' questions with several processes, ``record`` is everything that was ever published,
as a file can hold it.
"""

from fl_simulator.ledgers.choosing import Chooser
from fl_simulator.ledgers.network import LocalUpdate, VirtualServers
from fl_simulator.ledgers.record import Record, RecordedUpdate

__all__ = ["Chooser", "LocalUpdate", "Record", "RecordedUpdate", "VirtualServers"]
