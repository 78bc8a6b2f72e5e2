"""Carries out erasures: ends the runs, has memory and tools erase their data, then has the receipt written.

Every orchestrator polls; memory assigns each erasure to one of them for a limited time. Every step may be repeated, so
this process after a restart, or another one, can continue an interrupted erasure.
"""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import grpc
import structlog

from headrace.errors import HeadraceError, NotFound, Overloaded, StaleLease
from headrace.v1 import data_pb2, tools_pb2
from services.orchestrator.peers.stubs import UNARY_TIMEOUT_S, Peers
from services.runtime.auth.identity import Identity, acting_as
from services.runtime.randomness import choose_uniform

if TYPE_CHECKING:
    from collections.abc import Generator

    from services.orchestrator.cluster.forwarding import Forwarder
    from services.orchestrator.lifecycle.leases import Owner

JITTER = (0.6, 1.0)
"""Random factor of the poll interval, so that replicas do not poll at the same time."""

TTL_MS = 60_000
"""Maximum time for one portion of the work; after that, other orchestrators may take the erasure over."""

TOOLS_TIMEOUT_S = 600.0
"""Timeout of one erasure in the tools service, because a user may have many files."""

FINISH_TIMEOUT_S = 6 * 3600.0
"""Clearing a large store takes minutes, or hours if its tables are rewritten."""

ROUND_S = 20.0
"""Maximum pause before an erasure that waits for its receipt erases again and extends its claim."""

AGAIN_S = 0.3
"""Time between checks of runs that are about to end."""

RUNS_END_S = 60.0
"""How long an erasure waits for runs to end before it reports the problem and retries later."""

PROBLEM_CHARS_MAX = 500

log = structlog.get_logger()


class Erasing:
    def __init__(self, peers: Peers, relays: Forwarder, owner: Owner, look_s: float) -> None:
        self._stored = peers.data
        self._tools = peers.tools
        self._relays = relays
        self._owner = owner.address
        self._look_s = look_s
        self._going: set[str] = set()
        """Erasures in progress here; memory assigns ten at a time."""

    async def watch(self) -> None:
        async with asyncio.TaskGroup() as group:
            while True:
                await asyncio.sleep(self._look_s * choose_uniform(*JITTER))
                with _log_errors():
                    request = data_pb2.ClaimErasuresRequest(owner=self._owner, ttl_ms=TTL_MS, working_on=self._going)
                    for erasure in (await self._ask(self._stored.ClaimErasures, request)).erasures:
                        self._going.add(erasure.erasure_id)
                        task = group.create_task(self._work_on(erasure))
                        task.add_done_callback(lambda _, key=erasure.erasure_id: self._going.discard(key))

    async def _work_on(self, erasure: data_pb2.Erasure) -> None:
        erasure_id = erasure.erasure_id
        with _log_errors(erasure_id):
            try:
                await self._erase(erasure)
                log.info("data erased", erasure_id=erasure_id)
            except (HeadraceError, grpc.aio.AioRpcError) as error:
                if problem := _describe_problem(error):
                    request = data_pb2.FinishErasureRequest(erasure_id=erasure_id, owner=self._owner, problem=problem)
                    with _log_errors(erasure_id):
                        await self._ask(self._stored.FinishErasure, request)
                raise

    async def _erase(self, erasure: data_pb2.Erasure) -> None:
        """Erase all data, repeatedly until there is a receipt."""
        erasure_id = erasure.erasure_id
        finish = data_pb2.FinishErasureRequest(erasure_id=erasure_id, owner=self._owner)
        while True:
            await self._end_runs(erasure)
            left = await self._erase_stored(erasure_id, [])
            # A run may have written more while it ended. That is erased as well, because no other process has the files
            # now.
            await self._erase_stored(erasure_id, await self._erase_files(erasure, left))
            if not (wait_ms := (await self._ask(self._stored.FinishErasure, finish, FINISH_TIMEOUT_S)).wait_ms):
                return
            await asyncio.sleep(min(wait_ms / 1000, ROUND_S))

    async def _end_runs(self, erasure: data_pb2.Erasure) -> None:
        loop = asyncio.get_running_loop()
        until_s = loop.time() + RUNS_END_S
        request = data_pb2.ListErasedRunsRequest(erasure_id=erasure.erasure_id, owner=self._owner)
        while runs := (await self._ask_patiently(self._stored.ListErasedRuns, request, until_s)).runs:
            if loop.time() > until_s:
                raise Overloaded(f"{len(runs)} runs have not ended, {runs[0].run_id} among them")
            for run in runs:
                with acting_as(Identity.from_stored(erasure.tenant, run.user)):
                    try:
                        await self._relays.cancel(run.run_id)
                    except NotFound:
                        continue
                    except HeadraceError as error:
                        log.warning("run not ended", run_id=run.run_id, reason=error.reason)
            await asyncio.sleep(AGAIN_S)

    async def _erase_files(
        self, erasure: data_pb2.Erasure, left: data_pb2.EraseStoredResponse
    ) -> list[data_pb2.ErasedItem]:
        wanted = tools_pb2.EraseOwnedDataRequest(
            tenant=erasure.tenant,
            user=erasure.user,
            redacted=left.redacted,
            held_chat_ids=left.held_chat_ids,
            held_users=left.held_users,
        )
        return list((await self._ask(self._tools.EraseOwnedData, wanted, TOOLS_TIMEOUT_S)).erased)

    async def _erase_stored(self, erasure_id: str, erased: list[data_pb2.ErasedItem]) -> data_pb2.EraseStoredResponse:
        """Have memory erase until no data is left, and record the items that tools has erased."""
        request = data_pb2.EraseStoredRequest(erasure_id=erasure_id, owner=self._owner, ttl_ms=TTL_MS, erased=erased)
        while True:
            response = await self._ask(self._stored.EraseStored, request)
            if response.is_done:
                return response
            request.ClearField("erased")

    async def _ask_patiently(self, rpc: Any, request: Any, until_s: float) -> Any:
        """Repeat the request while some service of the store does not know the erasure yet, or the index is still being
        built."""
        while True:
            try:
                return await self._ask(rpc, request)
            except Overloaded as error:
                if asyncio.get_running_loop().time() > until_s:
                    raise
                await asyncio.sleep(error.retry_after_s or AGAIN_S)

    @staticmethod
    async def _ask(rpc: Any, request: Any, timeout_s: float = UNARY_TIMEOUT_S) -> Any:
        with acting_as(None):
            return await rpc(request, timeout=timeout_s)


def _describe_problem(error: HeadraceError | grpc.aio.AioRpcError) -> str:
    """Return the problem to record; empty if it cannot be recorded."""
    match error:
        case StaleLease():
            return ""
        case HeadraceError():
            return f"{error.reason}: {error.message}"[:PROBLEM_CHARS_MAX]
        case _ if error.code() is grpc.StatusCode.UNIMPLEMENTED:
            return ""
        case _:
            details = error.details() or "a service's log says why"
            return f"{error.code().name}: {details}"[:PROBLEM_CHARS_MAX]


@contextmanager
def _log_errors(erasure_id: str = "") -> Generator[None]:
    """Log the failure of one poll, or one erasure, so that the others continue."""
    try:
        yield
    except HeadraceError as error:
        log.warning("erasure is stuck", erasure_id=erasure_id, reason=error.reason, problem=error.message)
    except grpc.aio.AioRpcError as error:
        # A memory service of the version before, in the middle of an upgrade, has none.
        say = log.debug if error.code() is grpc.StatusCode.UNIMPLEMENTED else log.warning
        say("erasure is stuck", erasure_id=erasure_id, status=error.code().name)
    except Exception:
        log.exception("erasure is stuck", erasure_id=erasure_id)
