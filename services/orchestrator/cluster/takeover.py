"""Takes over unowned runs, found at the start and about once a second, in a state of the store that may be 3 s old.

The first process to ask gets the run with a new generation, and memory refuses earlier owners. All runs of a chat go to
one owner, in order.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from dataclasses import replace
from weakref import WeakValueDictionary

import structlog

from headrace.errors import (
    HeadraceError,
    InvalidRequest,
    NotFound,
    Overloaded,
    PermissionDenied,
    ProviderUnavailable,
    StaleLease,
    UnknownPlaceholder,
)
from headrace.v1 import memory_pb2
from services.orchestrator.agents.definition import Definition
from services.orchestrator.agents.definition.modes import MODES, STAGES
from services.orchestrator.agents.registry import Registry
from services.orchestrator.agents.version import AgentVersion
from services.orchestrator.cluster.schedules import record_taken_run
from services.orchestrator.lifecycle.finish import make_interrupted_end
from services.orchestrator.lifecycle.leases import Owner
from services.orchestrator.lifecycle.live_runs import HeldRuns, stopping
from services.orchestrator.lifecycle.pins import Pins, apply_query, read_trial
from services.orchestrator.lifecycle.runs import Runs
from services.orchestrator.peers import stored_runs
from services.orchestrator.peers.stubs import Peers, patiently
from services.orchestrator.run.restore.restored_run import RestoredRun
from services.orchestrator.run.restore.resume_point import CRASHED, HANDED_OVER, PARKED, ResumePoint, count_crashes
from services.orchestrator.run.run import Run, is_recorded
from services.runtime.auth.identity import Identity, acting_as, require_identity
from services.runtime.clock import now_ms
from services.runtime.randomness import choose_uniform

SEQ_PER_GENERATION = 1_000_000
"""Seqs of generation g start at g times this, plus 1 (docs/reference/events.md)."""

GENERATION_MAX = 1_000_000
"""If memory has lost its index, generations above this move to the next free range, so that seqs stay exact for JSON
readers."""

CRASHES_MAX = 3
"""A run that has lost this many owners is assumed to crash them."""

LOOKS_PER_LEASE = 15
"""With leases of 15 s, a released run continues within about 2 s, and a dead owner's within 17 s."""

JITTER = (0.8, 1.2)
"""Random factor of the poll interval; replicas in step would ask for the same runs."""

log = structlog.get_logger()


CHATS_AT_ONCE = 8


class Takeover:
    """Takes over runs; those of one chat one at a time."""

    def __init__(
        self,
        runs: Runs,
        held: HeldRuns,
        registry: Registry,
        pins: Pins,
        peers: Peers,
        owner: Owner,
        is_suspended: Callable[[Identity], bool],
    ) -> None:
        """Keep parked runs of users for whom `is_suspended` returns true parked, even when their gates expire."""
        self._is_suspended = is_suspended
        self._runs = runs
        self._held = held
        self._registry = registry
        self._pins = pins
        self._peers = peers
        self._owner = owner
        self._taking: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def at_start(self) -> None:
        await patiently(self._take_unowned)

    async def watch(self) -> None:
        looks = 0
        while True:
            looks += 1
            await asyncio.sleep(self._owner.lease_s / LOOKS_PER_LEASE * choose_uniform(*JITTER))
            try:
                # Some looks include owned runs: one that this process lost without knowing still has our lease.
                await self._take_unowned(without_owner=bool(looks % LOOKS_PER_LEASE))
                for held in self._held.all():  # for readers
                    if held.due_at <= now_ms() and not (self._runs.is_draining or self._is_suspended(held.identity)):
                        with acting_as(held.identity):
                            await self.find(held.id)
            except HeadraceError as error:
                log.warning("runs not looked for", reason=error.reason)
            except Exception:
                # The supervisor: an error in one look must not end all that follow.
                log.exception("runs not looked for")

    async def _take_unowned(self, *, without_owner: bool = False) -> None:
        if self._runs.is_draining:
            return
        with acting_as(None):
            found = await stored_runs.list_unfinished(self._peers, without_owner=without_owner)
        # A log that has taken no end is tried again, but not at every look.
        skipped = frozenset(self._runs.unstored if without_owner else ())
        away = [run for run in found if not (self._runs.live.has(run.run_id) or self._held.has(run.run_id))]
        away = [run for run in away if run.run_id not in skipped]
        away = [run for run in away if not (_is_parked(run) and self._is_suspended(_owner_identity(run)))]
        free = [*{run.chat_id: run for run in away if not self._is_owned_elsewhere(run)}.values()]
        for first in range(0, len(free), CHATS_AT_ONCE):
            has_room = self._runs.live.has_room
            # Those that were parked wait for a place: all of them may be due at the same time.
            there_is = (run for run in free[first : first + CHATS_AT_ONCE] if has_room or not _is_parked(run))
            some = (self._take_chat(run, skipped) for run in there_is)
            for problem in await asyncio.gather(*some, return_exceptions=True):
                if problem is not None:
                    raise problem

    async def _take_chat(self, run: memory_pb2.UnfinishedRun, skipped: Collection[str]) -> None:
        with acting_as(_owner_identity(run)):
            for entry in await stored_runs.list_unfinished_of_chat(self._peers, run.run_id):
                # A chat's runs keep their order: none goes before one that is still another's.
                if entry.run_id not in skipped and not await self._try_take_over(entry):
                    break

    async def find(self, run_id: str) -> Run | str | None:
        """Return the live run, or its owner's address; None if it has ended or is not the caller's.

        Raises:
            Overloaded: Another process is taking the run over.
        """
        await self._runs.live.wait_until_left(run_id)
        if (run := self._runs.live.find(run_id)) is not None:
            return run
        for entry in await stored_runs.list_unfinished_of_chat(self._peers, run_id):
            if self._is_owned_elsewhere(entry):
                return entry.owner
            if self._is_left(entry, run_id):
                async with self._chat_lock(entry.chat_id):
                    return await self._take_run(run_id)
        return self._runs.live.find(run_id)

    async def _take_run(self, run_id: str) -> Run | str | None:
        """Take over the chat's runs up to this one; returns the same as `find`."""
        # Read again: other processes may have taken the runs over, or the runs may have ended.
        for entry in await stored_runs.list_unfinished_of_chat(self._peers, run_id):
            if self._is_owned_elsewhere(entry):
                return entry.owner
            if self._is_left(entry, run_id):
                run = await self._take_over(entry)
                if entry.run_id == run_id:
                    return run
        return self._runs.live.find(run_id)

    def _chat_lock(self, chat_id: str) -> asyncio.Lock:
        return self._taking.setdefault(chat_id, asyncio.Lock())

    def _is_left(self, entry: memory_pb2.UnfinishedRun, run_id: str) -> bool:
        if self._runs.live.has(entry.run_id):
            return False
        return entry.run_id == run_id or entry.run_id not in self._runs.unstored

    async def owner_of(self, run_id: str) -> str | None:
        unfinished = await stored_runs.list_unfinished_of_chat(self._peers, run_id)
        return next(
            (entry.owner for entry in unfinished if entry.run_id == run_id and self._is_owned_elsewhere(entry)), None
        )

    async def _try_take_over(self, entry: memory_pb2.UnfinishedRun) -> bool:
        """Return whether no other process owns the run now."""
        try:
            async with self._chat_lock(entry.chat_id):
                if not self._is_owned_elsewhere(entry):
                    await self._take_over(entry)
                    return True
        except ProviderUnavailable:
            raise
        except Overloaded:
            return False  # another was faster
        except HeadraceError as error:
            # One log that cannot be written must not delay other chats; the next client that attaches triggers another
            # attempt.
            log.error("run not taken over", run_id=entry.run_id, reason=error.reason, problem=error.message)
        except Exception:
            # A run that cannot be read must not keep the service from starting.
            log.exception("run not taken over", run_id=entry.run_id)
        return False

    def _is_owned_elsewhere(self, entry: memory_pb2.UnfinishedRun) -> bool:
        return entry.owner not in ("", self._owner.address) and entry.lease_expires_at > now_ms()

    async def _take_over(self, entry: memory_pb2.UnfinishedRun) -> Run | None:
        """Take over the run; return it, or None if it has ended."""
        with acting_as(_owner_identity(entry)):
            if run := self._runs.live.find(entry.run_id):
                return run
            if self._runs.is_draining:
                raise stopping()
            if self._is_owned_elsewhere(entry):
                raise _make_moved_error()
            generation = await self._acquire_lease(entry)
            if generation is None:
                return None
            request = memory_pb2.GetChatRequest(chat_id=entry.chat_id, run_id=entry.run_id, include_lines=True)
            try:
                chat = await stored_runs.get_run_chat(self._peers, _owner_identity(entry), request)
                return await self._resume_or_end(entry, chat, generation)
            finally:
                self._held.wake(entry.run_id)

    async def _resume_or_end(
        self, entry: memory_pb2.UnfinishedRun, chat: memory_pb2.GetChatResponse, generation: int
    ) -> Run | None:
        restored = RestoredRun(chat.lines)
        query = next(line.query for line in chat.lines if line.HasField("query"))
        pinned = query.agent_version_hash  # None of a version that is lost
        version = await self._pins.find(query.query.agent_key, pinned) if pinned else None
        agent = self._find_agent(query, restored, version)
        seq_range = generation if generation <= GENERATION_MAX else entry.last_seq // SEQ_PER_GENERATION + 1
        base_seq = seq_range * SEQ_PER_GENERATION
        failure = self._runs.unstored.get(entry.run_id)
        if failure is not None or agent is None or count_crashes(restored) >= CRASHES_MAX:
            recorded = is_recorded(query.query, agent)
            end = make_interrupted_end(
                entry, restored, chat.events, generation, base_seq, failure, is_recorded=recorded
            )
            await self._peers.memory.Append(end)
            self._runs.unstored.pop(entry.run_id, None)
            await record_taken_run(self._peers, entry.run_id, query.query)
            log.warning("run ended as interrupted", run_id=entry.run_id, last_seq=entry.last_seq)
            return None
        reason = HANDED_OVER if entry.owner and not entry.lease_expires_at else CRASHED
        if _is_parked(entry) or self._held.has(entry.run_id):
            reason = PARKED
        is_changed = version is None and agent.hash != query.agent_hash
        past = ResumePoint(
            generation, base_seq, chat.events, restored, reason, is_changed, query.traceparent, chat.owner
        )
        with acting_as(replace(require_identity(), makers=frozenset(query.makers))):
            run = self._runs.resume(entry.run_id, agent, query.query, past, version)
        tell = log.info if reason == PARKED else log.warning
        tell("run taken over", run_id=run.id, generation=generation, last_seq=entry.last_seq, reason=reason)
        if self._runs.is_draining:
            # While the lease was requested, the process may have started to stop, and already handed over all its runs.
            run.control.give_up()
            raise stopping()
        if reason != PARKED:
            await record_taken_run(self._peers, run.id, query.query)
        return run

    def _find_agent(
        self, query: memory_pb2.QueryLine, restored: RestoredRun, version: AgentVersion | None
    ) -> Definition | None:
        """Return the agent; None if the run is not pinned and its agent is gone or has changed its mode."""
        try:
            agent = read_trial(query.query) or (
                version.agent if version is not None else self._registry.get(query.query.agent_key)
            )
            agent = apply_query(agent, query.query, query.credential)
        except (NotFound, PermissionDenied, InvalidRequest, UnknownPlaceholder):
            return None
        others = STAGES.keys() - {stage.name for stage in MODES[agent.mode].stages}
        return None if restored.stages & others else agent

    async def _acquire_lease(self, entry: memory_pb2.UnfinishedRun) -> int | None:
        """Return the new generation, or None if the run has ended. Raises Overloaded if another process was faster."""
        request = memory_pb2.AcquireLeaseRequest(
            chat_id=entry.chat_id, run_id=entry.run_id, owner=self._owner.address, ttl_ms=self._owner.ttl_ms
        )
        try:
            return (await self._peers.memory.AcquireLease(request)).generation
        except StaleLease:
            request = memory_pb2.GetChatRequest(chat_id=entry.chat_id, run_id=entry.run_id)
            chat = await stored_runs.get_run_chat(self._peers, _owner_identity(entry), request)
            if stored_runs.has_ended(chat):
                return None
            raise _make_moved_error() from None


def _owner_identity(entry: memory_pb2.UnfinishedRun) -> Identity:
    return Identity.from_stored(entry.tenant, entry.user)


def _is_parked(entry: memory_pb2.UnfinishedRun) -> bool:
    return not entry.owner and bool(entry.lease_expires_at)


def _make_moved_error() -> Overloaded:
    return Overloaded("another process has the run; try again", retry_after_s=0)
