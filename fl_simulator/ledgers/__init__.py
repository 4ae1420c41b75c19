"""Ledger servers in virtual time: the core's ledger, selection and signatures, without sockets and clocks.

``replica`` is one server, ``network`` several of them and what travels between, ``choosing`` answers many clients'
questions with several processes, ``both_ends`` lets threads share what is hashed, ``record`` is everything that was
ever published, as a file can hold it.
"""

from fl_simulator.ledgers.choosing import Chooser
from fl_simulator.ledgers.network import Draft, VirtualServers
from fl_simulator.ledgers.record import Publication, Record
from fl_simulator.ledgers.replica import Replica

__all__ = ["Chooser", "Draft", "Publication", "Record", "Replica", "VirtualServers"]
