"""The lists of all tips and of all clients: an entry is made once, and a list once of a ledger that has not grown.

They are as long as there are authors, whom an open ledger lets anybody add to, and may be asked for all the time.
"""

import threading
from collections.abc import Callable, Hashable, Iterable, Sequence
from itertools import accumulate
from typing import Final, Generic, TypeVar

from starlette.requests import Request
from starlette.responses import Response

from fl_core.types import TxId
from fl_core.wire import v1
from ledger_server.api.json_response import PackedJson, answer_unless_known, tag_of
from ledger_server.api.serializers import rfc3339
from ledger_server.publishing import LedgerService

Entry = TypeVar("Entry", bound=Hashable)

MOST_KEPT_BYTES: Final = 50_000_000
"""Of a list's entries that are kept, 100,000 of half a KB each; of a longer list the others are made for each list.
Authors make theirs as long as they like, up to 6 KB."""


class Listing(Generic[Entry]):
    """One list of one ledger; safe to ask from many threads.

    Args:
        service: The ledger.
        entries: How many transactions it has, and what is to be listed of these, in order.
        make: The JSON of some entries, in their order.
        around: The answer, still without entries, for so many transactions and these.
    """

    def __init__(
        self,
        service: LedgerService,
        *,
        entries: Callable[[], tuple[int, Sequence[Entry]]],
        make: Callable[[Sequence[Entry]], Iterable[str]],
        around: Callable[[int, Sequence[Entry]], v1.TipsOut | v1.ClientsOut],
    ) -> None:
        self._service, self._entries, self._make, self._around = service, entries, make, around
        self._making = threading.Lock()
        self._texts: dict[Entry, str] = {}
        self._made: tuple[int, PackedJson] | None = None

    def response(self, request: Request) -> Response:
        """The list of the ledger as it is; 304 where the client has that."""
        tag = tag_of(self._service, len(self._service.ledger))
        return answer_unless_known(request, tag, lambda: self.now().response(request))

    def now(self) -> PackedJson:
        """The same, for whoever asks."""
        with self._making:
            if self._made is None or self._made[0] < len(self._service.ledger):
                self._made = self._anew()
            return self._made[1]

    def _anew(self) -> tuple[int, PackedJson]:
        transactions, entries = self._entries()
        texts = {entry: self._texts[entry] for entry in entries if entry in self._texts}
        new = [entry for entry in entries if entry not in texts]
        texts.update(zip(new, self._make(new), strict=True))
        sizes = accumulate(map(len, texts.values()))
        self._texts = {
            entry: text for (entry, text), size in zip(texts.items(), sizes, strict=True) if size <= MOST_KEPT_BYTES
        }
        around = self._around(transactions, entries).model_dump_json().removesuffix("]}")
        text = f"{around}{','.join(map(texts.__getitem__, entries))}]}}"
        return transactions, PackedJson(text.encode(), tag_of(self._service, transactions))


class Listings:
    """Those of one ledger.

    Attributes:
        tips: What nobody names as a parent, ascending by id.
        clients: Each author's newest, by author.
    """

    def __init__(self, service: LedgerService) -> None:
        self._service = service
        self.tips: Listing[TxId] = Listing(
            service,
            entries=service.tips,
            make=self._tips,
            around=lambda count, tips: v1.TipsOut(
                ledger=service.id, transactions=count, digest=service.tips_digest(tuple(tips)), items=[]
            ),
        )
        self.clients: Listing[tuple[TxId, bool]] = Listing(
            service,
            entries=service.newest,
            make=self._clients,
            around=lambda _, __: v1.ClientsOut(ledger=service.id, items=[]),
        )

    def _tips(self, tips: Sequence[TxId]) -> Iterable[str]:
        for stored in self._service.store.transactions(tips):
            header = stored.transaction.header
            yield v1.TipOut(
                transaction=stored.transaction.id, author=header.author, sequence=header.sequence, depth=stored.depth
            ).model_dump_json()

    def _clients(self, newest: Sequence[tuple[TxId, bool]]) -> Iterable[str]:
        found = self._service.store.transactions([id_ for id_, _ in newest])
        for stored, (_, is_tip) in zip(found, newest, strict=True):
            header = stored.transaction.header
            yield v1.ClientOut(
                author=header.author,
                newest=stored.transaction.id,
                sequence=header.sequence,
                depth=stored.depth,
                is_tip=is_tip,
                created_at=rfc3339(header.created_at_ms),
                num_examples=header.num_examples,
                metrics=dict(header.metrics),
            ).model_dump_json()
