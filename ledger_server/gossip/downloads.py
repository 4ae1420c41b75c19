"""Fetching models into ``Incoming``: from a bucket that peers share with this server, or from a peer.

Of a peer a large one is streamed by itself, and small ones come several in an answer.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Callable, Mapping
from typing import TYPE_CHECKING, Final

from anyio.to_thread import run_sync

from fl_core.models import Buffer
from fl_core.sync.effects import Effect, Failure, SendRequest
from fl_core.sync.limits import GossipLimits
from fl_core.sync.messages import GetModel, ModelComplete, ModelCorrupt, ModelUnknown, Response
from fl_core.sync.model_fetches import MIN_BYTES_PER_S
from fl_core.sync.node import GossipNode
from fl_core.types import Digest, PublicKey
from fl_core.wire.v1 import STEP_MEDIA_TYPE
from ledger_server.gossip.errors import LinkError
from ledger_server.gossip.incoming import Incoming
from ledger_server.store.errors import StoreError

if TYPE_CHECKING:
    from ledger_server.gossip.link import PeerLink
    from ledger_server.gossip.unfolding import Unfolding

logger: logging.Logger = logging.getLogger(__name__)

_STILL_READING_S: Final = 0.5
TOGETHER_BYTES: Final = 1 << 20
"""Small models are fetched several in one request, up to so many bytes: the request costs more than the model."""


class Downloads:
    """Does what ``SendRequest`` of a ``GetModel`` asks for, and reports to the node.

    Args:
        node: Whose requests these are.
        links: By peer.
        incoming: Where the models go.
        limits: Deadlines.
        unfold: Finds what large models are asked for coded by; None: they are asked for whole.
        shared: Reads a model, by digest and size, that a peer has put where this server's lie, too; may block. None: no
            peer does.
        then: Does the effects of what was reported.
        failed: Reports a request that has no answer.
    """

    def __init__(
        self,
        node: GossipNode,
        links: Mapping[PublicKey, "PeerLink"],
        incoming: Incoming,
        *,
        limits: GossipLimits,
        unfold: "Unfolding | None" = None,
        shared: Callable[[Digest, int], Buffer | None] | None = None,
        then: Callable[[list[Effect]], None],
        failed: Callable[[SendRequest, LinkError], None],
    ) -> None:
        self._node, self._links, self._incoming, self._limits = node, links, incoming, limits
        self._unfold, self._shared, self._then, self._failed = unfold, shared, then, failed

    def is_small(self, request: GetModel) -> bool:
        """Whether it is fetched together with others."""
        return self._shared is None and request.start == 0 and 2 * request.size <= TOGETHER_BYTES

    async def fetch(self, sent: SendRequest) -> None:
        """One model: from where this server shares a bucket with others, else from the peer."""
        found = None if self._shared is None else await self._put_by_others(sent, self._shared)
        if found is None:
            await self._stream(sent)
            return
        assert isinstance(sent.request, GetModel), "the caller has matched it"
        try:
            kept = ModelComplete() if self._incoming.take_whole(sent.request.digest, found) else self._keep(sent, found)
        except OSError as error:
            self._failed(sent, _not_kept(error))
        else:
            self._then(self._node.answered(sent, kept, time.monotonic()))

    async def _put_by_others(self, sent: SendRequest, shared: Callable[[Digest, int], Buffer | None]) -> Buffer | None:
        request = sent.request
        assert isinstance(request, GetModel), "the caller has matched it"
        reading = asyncio.ensure_future(run_sync(shared, request.digest, request.size))
        while not (await asyncio.wait([reading], timeout=_STILL_READING_S))[0]:
            self._node.model_progress(sent, time.monotonic())
        try:
            return reading.result()
        except StoreError:
            return None

    async def _stream(self, sent: SendRequest) -> None:
        """What came stays when the link breaks, so that the next peer goes on from there."""
        request = sent.request
        assert isinstance(request, GetModel), "the caller has matched it"
        try:
            base = await self._base(request)
            stream = await self._links[sent.peer].model(request, base=None if base is None else base[0])
            if isinstance(stream, ModelUnknown):
                self._then(self._node.answered(sent, stream, time.monotonic()))
                return
            async with contextlib.aclosing(stream):
                pieces: AsyncIterator[bytes] = stream
                if base is not None and stream.media_type == STEP_MEDIA_TYPE:
                    pieces = self._unfolded(stream, base)
                if not self._incoming.begin(request.digest, start=request.start):
                    return
                async for piece in pieces:
                    moved = self._node.model_progress(sent, time.monotonic())
                    if moved is None or not self._incoming.write(request.digest, piece):
                        return
                    sent = moved
            is_sound = self._incoming.finish(request.digest)
        except LinkError as error:
            self._failed(sent, error)
        except OSError as error:
            self._failed(sent, _not_kept(error))
        else:
            if is_sound is None:
                self._failed(sent, LinkError(Failure.UNREACHABLE, "the model ended too early"))
            else:
                end = ModelComplete() if is_sound else ModelCorrupt()
                self._then(self._node.answered(sent, end, time.monotonic()))

    async def _base(self, request: GetModel) -> tuple[Digest, Buffer] | None:
        """What a model is asked for coded by; None: whole, as where a part of it has come."""
        header = (
            self._node.inbound.header_of(request.digest) if self._unfold is not None and not request.start else None
        )
        if self._unfold is None or header is None:
            return None
        return await run_sync(self._unfold.base, header)

    async def _unfolded(self, stream: AsyncIterator[bytes], base: tuple[Digest, Buffer]) -> AsyncIterator[bytes]:
        """A coded model's pieces, of which none is of the model itself, and then all of that.

        Raises:
            LinkError: What came is none.
        """
        assert self._unfold is not None, "what is coded was asked for"
        coded = bytearray()
        async for piece in stream:
            coded += piece
            yield b""  # the peer is at it
        whole = await run_sync(self._unfold.whole, bytes(coded), base)
        if whole is None:
            raise LinkError(Failure.MALFORMED, "a model that is not coded by what it was asked for by")
        yield bytes(whole)

    async def fetch_together(self, requests: list[SendRequest]) -> None:
        """Several small models of one peer; they are settled together, so that the next are asked for together."""
        waiting = {sent.request.digest: sent for sent in requests if isinstance(sent.request, GetModel)}
        ended: list[tuple[SendRequest, Response]] = []
        failure = LinkError(Failure.UNREACHABLE, "the answer ended too early")
        within_s = self._limits.model_stall_s + TOGETHER_BYTES / MIN_BYTES_PER_S
        try:
            answer = self._links[requests[0].peer].models(list(waiting), within_s=within_s)
            async with contextlib.aclosing(answer) as models:
                async for digest, data in models:
                    sent = waiting[digest]
                    ended.append((sent, data if isinstance(data, ModelUnknown) else self._keep(sent, data)))
                    del waiting[digest]  # only now: one that could not be kept has failed with the others
                    now_s = time.monotonic()
                    waiting = {each: self._node.model_progress(sent, now_s) or sent for each, sent in waiting.items()}
        except LinkError as error:
            failure = error
        except OSError as error:
            failure = _not_kept(error)
        effects: list[Effect] = []
        for sent, response in ended:
            effects += self._node.answered(sent, response, time.monotonic())
        self._then(effects)
        for sent in waiting.values():
            self._failed(sent, failure)

    def _keep(self, sent: SendRequest, data: Buffer) -> Response:
        request = sent.request
        assert isinstance(request, GetModel), "the caller has matched it"
        self._incoming.begin(request.digest, start=0)
        if self._incoming.write(request.digest, data) and self._incoming.finish(request.digest):
            return ModelComplete()
        self._incoming.discard(request.digest)
        return ModelCorrupt()


def _not_kept(error: OSError) -> LinkError:
    logger.warning("a peer's model cannot be kept", extra={"reason": str(error)})
    return LinkError(Failure.LOCAL, "the model cannot be kept")
