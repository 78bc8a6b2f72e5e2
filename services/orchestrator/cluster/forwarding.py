"""Forwards calls to the orchestrator that owns a run, at most once, and streams its replies back.

If the owner does not answer, memory is asked again who owns the run; readers of a broken stream attach again.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import grpc
import structlog
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from headrace.cassette.methods import find_method_of
from headrace.errors import Overloaded, ProviderUnavailable
from headrace.streams import reading, rpc_errors
from headrace.v1 import agent_pb2
from services.orchestrator.cluster.takeover import Takeover
from services.orchestrator.lifecycle.live_runs import OwnedElsewhere, stopping
from services.orchestrator.lifecycle.runs import Runs
from services.orchestrator.run.run import Run
from services.runtime.auth.identity import Identity, acting_as, require_identity
from services.runtime.rpc.call_ids import forward_metadata
from services.runtime.rpc.channels import CallerMetadata, open_channel
from services.runtime.rpc.interceptors import Context
from services.runtime.rpc.push_stream import MessageSink

log = structlog.get_logger()


LANES_MAX = 64
"""Maximum open channels. Channels to departed replicas stay until `tidy` closes them."""

UNUSED_S = 60.0


@dataclass(slots=True)
class _PeerChannel:
    channel: grpc.aio.Channel
    calls: int = 0
    used_s: float = 0.0


class PeerChannels:
    """Channels to other orchestrators. Open it with `async with`, and run `tidy` in a task."""

    def __init__(self, badge: CallerMetadata) -> None:
        self._badge = badge
        self._lanes: dict[str, _PeerChannel] = {}

    async def __aenter__(self) -> PeerChannels:
        return self

    async def __aexit__(self, *_: object) -> None:
        for lane in self._lanes.values():
            await lane.channel.close()

    @asynccontextmanager
    async def to(self, address: str) -> AsyncGenerator[grpc.aio.Channel]:
        """Yield the channel for one call.

        Raises:
            Overloaded: Too many channels are open.
            ProviderUnavailable: The address is invalid.
        """
        lane = self._lanes.get(address)
        if lane is None:
            if len(self._lanes) >= LANES_MAX:
                raise Overloaded(f"{LANES_MAX} orchestrators are called already; try again later")
            try:
                channel = open_channel(address, self._badge)
            except ValueError as error:
                # The owner registered without an address, because no process was meant to reach it.
                raise ProviderUnavailable("the run's owner has no address") from error
            lane = self._lanes[address] = _PeerChannel(channel)
        lane.calls += 1
        try:
            yield lane.channel
        finally:
            lane.calls -= 1
            lane.used_s = asyncio.get_running_loop().time()

    async def tidy(self) -> None:
        while True:
            await asyncio.sleep(UNUSED_S)
            before_s = asyncio.get_running_loop().time() - UNUSED_S
            unused = [address for address, lane in self._lanes.items() if not lane.calls and lane.used_s < before_s]
            for lane in [self._lanes.pop(address) for address in unused]:
                await lane.channel.close()


RELAYED = "x-headrace-relayed"

ANSWER_TIMEOUT_S = 5.0
"""After this time the call is repeated; every RPC here is safe to repeat."""

LOOK_AGAIN_S = 0.2
"""Wait before the owner is looked up again; a stopping owner hands its runs over within a second."""

SPARE_S = 5.0
"""Time after a lease's end in which another orchestrator notices it and takes the run over."""

Reply = TypeVar("Reply")
Passed = TypeVar("Passed")
Here = Callable[[Run | None], Awaitable[Reply | OwnedElsewhere]]
"""Answers in this process; the run is None if no process owns it."""


class Forwarder:
    def __init__(self, runs: Runs, takeover: Takeover, lanes: PeerChannels, lease_s: float) -> None:
        self._runs = runs
        self._takeover = takeover
        self._lanes = lanes
        self._patience_s = lease_s + SPARE_S

    async def answer(
        self, request: Any, context: Context, here: Here[Reply], *, requester: Identity | None = None
    ) -> Reply:
        """Answer here or through the run's owner; `requester` is the run's user if that is not the caller."""

        async def use(run: Run | None) -> Reply | OwnedElsewhere:
            if run is None:
                return await here(None)
            with run.in_use():
                return await here(run)

        there = partial(self._call_owner, request, context)
        return await self._answer_or_forward(request.run_id, context, use, there, requester)

    async def stream(self, request: Any, context: Context, out: MessageSink, here: Here[Reply]) -> Reply | int:
        run_id: str = getattr(request, "run_id", "")
        return await self._answer_or_forward(run_id, context, here, partial(self._pass_stream, request, context, out))

    async def cancel(self, run_id: str) -> None:
        """Cancel a run of the current user, on any owner, as that user's Cancel does.

        Raises:
            NotFound: The user has no such run.
            HeadraceError: The owner cannot be reached now.
        """
        home = await self._takeover.find(run_id)
        if isinstance(home, Run):
            home.control.cancel("now")
        elif home is not None:
            await self._call_owner(agent_pb2.CancelRequest(run_id=run_id), None, home)

    async def ask_owner(self, request: Message, context: Context, run_id: str) -> Any:
        """Send the request to the run's other owner; return None if it has none or the owner does not answer."""
        if _is_relayed(context):
            return None
        address = await self._takeover.owner_of(run_id)
        try:
            return None if address is None else await self._call_owner(request, context, address)
        except (Overloaded, ProviderUnavailable) as error:
            log.warning("owner not asked", run_id=run_id, owner=address, reason=error.reason)
            return None

    async def _answer_or_forward(
        self,
        run_id: str,
        context: Context,
        here: Here[Reply],
        there: Callable[[str], Awaitable[Passed]],
        requester: Identity | None = None,
    ) -> Reply | Passed:
        loop = asyncio.get_running_loop()
        until_s = loop.time() + (0.0 if _is_relayed(context) else self._patience_s)
        while True:
            try:
                home: Run | str | None = None
                if run_id:
                    with acting_as(requester or require_identity()):
                        home = await self._takeover.find(run_id)
                if isinstance(home, str):
                    if _is_relayed(context):
                        raise Overloaded("the run is being moved; try again", retry_after_s=0)
                    return await there(home)
            except (Overloaded, ProviderUnavailable) as error:
                may_pass = isinstance(error, ProviderUnavailable) or error.retry_after_s == 0
                if not may_pass or self._runs.is_draining or loop.time() >= until_s:
                    raise
                await asyncio.sleep(LOOK_AGAIN_S)
                continue
            answer = await here(home)
            if not isinstance(answer, OwnedElsewhere):
                return answer
            run_id = answer.run_id

    async def _call_owner(self, request: Message, context: Context | None, address: str) -> Any:
        left_s = None if context is None else context.time_remaining()
        timeout_s = min(left_s or ANSWER_TIMEOUT_S, ANSWER_TIMEOUT_S)
        async with self._lanes.to(address) as channel:
            answer_type = GetMessageClass(find_method_of(request).output_type)
            call: Any = channel.unary_unary(_path(request), type(request).SerializeToString, answer_type.FromString)
            with _owner_errors():
                return await call(request, timeout=timeout_s, metadata=_make_metadata())

    async def _pass_stream(self, request: Message, context: Context, out: MessageSink, address: str) -> int:
        if self._runs.is_draining:
            # The stream would break a moment later, and its reader would reconnect once more than necessary.
            raise stopping()
        sent = 0
        async with self._lanes.to(address) as channel:
            call: Any = channel.unary_stream(_path(request), type(request).SerializeToString)
            opened = call(request, timeout=context.time_remaining(), metadata=_make_metadata())
            try:
                with _owner_errors():
                    async with reading(opened) as messages:
                        async for message in messages:
                            sent += 1
                            if not out.send(message):
                                await out.wait_until_drained()
            except ProviderUnavailable as error:
                if not sent:
                    raise
                log.warning("relay cut", owner=address, sent=sent, problem=error.message)
        return sent


@contextmanager
def _owner_errors() -> Generator[None]:
    """Raise the owner's own error; a broken connection becomes ProviderUnavailable."""
    try:
        with rpc_errors():
            yield
    except grpc.aio.AioRpcError as error:
        raise ProviderUnavailable("the run's owner does not answer; attach again") from error


def _is_relayed(context: Context) -> bool:
    return any(key == RELAYED for key, _ in context.invocation_metadata() or ())


def _make_metadata() -> tuple[tuple[str, str], ...]:
    return (*forward_metadata(), (RELAYED, "1"))


def _path(request: Message) -> str:
    method = find_method_of(request)
    return f"/{method.containing_service.full_name}/{method.name}"
