"""A channel's connections, one per address, the pauses between attempts to connect, and the calls that wait."""

from __future__ import annotations

import asyncio
import hashlib
from collections import deque

import grpc
import structlog

from services.runtime.calls.addresses import Address, resolve_target
from services.runtime.calls.client_call import Call
from services.runtime.calls.ends import ClientEnd, Dialer
from services.runtime.calls.metadata import Status
from services.runtime.randomness import choose_uniform

RESOLVE_S = 10.0
"""Time after which a spread target is resolved again."""

MISSING_S = 1.0
"""Time after which it is resolved again while an address cannot be reached."""

WAITING_MAX = 10_000
"""Maximum calls of a channel that wait for a connection or stream."""

State = grpc.ChannelConnectivity

log = structlog.get_logger()


class ConnectionPool:
    def __init__(self, dialer: Dialer) -> None:
        self._dialer = dialer
        self._is_spread = dialer.target.is_spread
        self.state = State.IDLE
        self._by_address: dict[Address, ClientEnd] = {}
        self._order: list[ClientEnd] = []
        self._next = 0
        self._waiting: deque[Call] = deque()
        self._refused: list[Call] = []
        """Refused calls that wait for another address."""
        self._connecting: asyncio.Task[None] | None = None
        self._backoff = Backoff()
        self._why = "not connected yet"
        self._change_waiters: set[asyncio.Future[None]] = set()
        self._leaving: list[ClientEnd] = []
        self._resolved_s = 0.0
        self._is_short = False
        """Whether some address has no connection."""

    def assign_call(self, call: Call) -> None:
        """Open the call on the next connection with room, queue it, or fail it."""
        if call.status is not None:
            return
        if self.state is State.SHUTDOWN:
            call.finish_call(Status(grpc.StatusCode.CANCELLED, "the channel is closed"))
            return
        for connection in self._list_candidates(call):
            if connection.has_room and (connection is not call.refused_by or len(self._order) == 1):
                connection.open_call(call)
                if self._is_spread and self._connecting is None:
                    # New and lost replicas are searched for periodically.
                    loop = asyncio.get_running_loop()
                    if loop.time() - self._resolved_s > (MISSING_S if self._is_short else RESOLVE_S):
                        self._connecting = loop.create_task(self._look_again())
                return
        if self.state is State.TRANSIENT_FAILURE and not call.waits_for_ready:
            call.finish_call(Status(grpc.StatusCode.UNAVAILABLE, self._why))
            self.start_connecting()
        elif len(self._waiting) >= WAITING_MAX:
            message = f"{WAITING_MAX} calls wait for a connection already"
            call.finish_call(Status(grpc.StatusCode.RESOURCE_EXHAUSTED, message))
        else:
            self._waiting.append(call)
            self.start_connecting()

    def _list_candidates(self, call: Call) -> list[ClientEnd]:
        """Return all connections, first the one whose turn it is, or those that every channel prefers for calls with
        this key (rendezvous hashing)."""
        if call.key and len(self._order) > 1:
            # Not `hash`, which differs from process to process.
            def rank(address: Address) -> bytes:
                return hashlib.blake2b(f"{address}\n{call.key}".encode(), digest_size=8).digest()

            return [self._by_address[address] for address in sorted(self._by_address, key=rank)]
        place = self._next % len(self._order) if self._order else 0
        self._next += 1
        return [*self._order[place:], *self._order[:place]]

    def repeat_call(self, call: Call) -> bool:
        """Open a refused call on another connection soon; return False if there is none."""
        if call.refused_by not in self._order or len(self._order) > 1:
            asyncio.get_running_loop().call_soon(self.assign_call, call)
            return True
        if self._is_short and len(self._refused) < WAITING_MAX:
            self._refused.append(call)
            if self._connecting is None:
                self._connecting = asyncio.get_running_loop().create_task(self._look_again())
            return True
        return False

    def start_connecting(self) -> None:
        """Start to connect, unless connected or connecting."""
        if self._connecting is None and not self._order and self.state is not State.SHUTDOWN:
            self._connecting = asyncio.get_running_loop().create_task(self._connect_and_rest())

    async def wait_for_change(self) -> None:
        change = asyncio.get_running_loop().create_future()
        self._change_waiters.add(change)
        try:
            await change
        finally:
            self._change_waiters.discard(change)

    async def close(self) -> None:
        self._set_state(State.SHUTDOWN)
        if self._connecting is not None:
            self._connecting.cancel()
            await asyncio.wait({self._connecting})
        self._fail_waiting("the channel is closed", all_of_them=True)
        await asyncio.gather(*(connection.close() for connection in (*self._order, *self._leaving)))

    # Connecting.

    async def _connect_and_rest(self) -> None:
        try:
            await self._backoff.wait_for_turn()
            self._set_state(State.CONNECTING)
            await self._connect_missing()
        finally:
            self._finish_connecting()
        if self._order:
            self._backoff.reset()
            return
        self._backoff.start_rest()
        self._set_state(State.TRANSIENT_FAILURE)
        self._fail_waiting(self._why, all_of_them=False)
        if self._waiting or self._change_waiters:
            # A call waits for ready: continue to try.
            self.start_connecting()

    async def _connect_missing(self) -> None:
        try:
            addresses = await resolve_target(self._dialer.target)
        except OSError as error:
            self._why = f"cannot resolve {self._dialer.target.text}: {error.strerror or error}"
            return
        self._resolved_s = asyncio.get_running_loop().time()
        for address in [address for address in self._by_address if address not in addresses]:
            self._by_address[address].close_when_done()
            self._forget_connection(self._by_address[address])
        missing = [address for address in addresses if address not in self._by_address]
        await asyncio.gather(*(self._connect_address(address) for address in missing))
        self._is_short = any(address not in self._by_address for address in addresses)

    async def _connect_address(self, address: Address) -> None:
        try:
            connection = await self._dialer.open_connection(address, self._on_free, self._on_gone)
        except OSError as error:
            self._why = str(error)
            return
        if connection.is_leaving:
            return  # the cause is known already
        self._by_address[address] = connection
        self._order.append(connection)
        self._set_state(State.READY)
        self._on_free()

    async def _look_again(self) -> None:
        try:
            await self._connect_missing()
        finally:
            self._finish_connecting()

    def _finish_connecting(self) -> None:
        self._connecting = None
        refused, self._refused = self._refused, []
        for call in refused:
            self.assign_call(call)

    # Callbacks of connections.

    def _on_free(self) -> None:
        while self._waiting and any(connection.has_room for connection in self._order):
            self.assign_call(self._waiting.popleft())

    def _on_gone(self, connection: ClientEnd, why: str) -> None:
        self._why = why
        if connection not in self._order:
            return
        self._forget_connection(connection)
        self._is_short = True
        if not self._order:
            self._set_state(State.IDLE)
            if self._waiting:
                self.start_connecting()

    def _forget_connection(self, connection: ClientEnd) -> None:
        self._order.remove(connection)
        self._by_address = {address: kept for address, kept in self._by_address.items() if kept is not connection}
        self._leaving = [*(kept for kept in self._leaving if not kept.is_lost), connection]

    def _fail_waiting(self, why: str, *, all_of_them: bool) -> None:
        calls, self._waiting = self._waiting, deque[Call]()
        for call in calls:
            if call.waits_for_ready and not all_of_them:
                self._waiting.append(call)
            elif all_of_them:
                call.finish_call(Status(grpc.StatusCode.CANCELLED, why))
            else:
                call.finish_call(Status(grpc.StatusCode.UNAVAILABLE, why))

    def _set_state(self, state: grpc.ChannelConnectivity) -> None:
        if self.state is state or self.state is State.SHUTDOWN:
            return
        self.state = state
        for change in self._change_waiters:
            if not change.done():
                change.set_result(None)


BACKOFF_S, BACKOFF_S_MAX = 0.1, 2.0
"""The first and the longest pause; a peer restarts within about a second."""


class Backoff:
    """A channel's pause, which doubles with each failure, with jitter."""

    def __init__(self) -> None:
        self._rest_s = BACKOFF_S
        self._until_s = 0.0

    async def wait_for_turn(self) -> None:
        if (rest_s := self._until_s - asyncio.get_running_loop().time()) > 0:
            await asyncio.sleep(rest_s)

    def start_rest(self) -> None:
        self._until_s = asyncio.get_running_loop().time() + self._rest_s * choose_uniform(0.8, 1.2)
        self._rest_s = min(self._rest_s * 2, BACKOFF_S_MAX)

    def reset(self) -> None:
        self._rest_s = BACKOFF_S
