"""Decides whether a query may begin a run here, by its form, its caller's key, and the capacity left."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from itertools import chain
from typing import TypeVar

from headrace.errors import ChatBusy, InvalidRequest, Overloaded, PermissionDenied, QueueFull, QuotaExceeded
from headrace.v1 import agent_pb2
from services.orchestrator.agents.registry import Registry
from services.orchestrator.lifecycle.admission.agent_router import AgentChoice, choose
from services.orchestrator.lifecycle.admission.fair_use import FairUse
from services.orchestrator.lifecycle.live_runs import LiveRuns, may_end, stopping
from services.orchestrator.lifecycle.parking import find_due_at
from services.orchestrator.lifecycle.pins import ChosenVersion, Pins, check_version, choose_version
from services.orchestrator.peers import stored_runs
from services.orchestrator.peers.stubs import Peers
from services.orchestrator.run.run import Run
from services.orchestrator.turn.output_form import check_output_format
from services.runtime.auth import identity
from services.runtime.auth.identity import Identity
from services.runtime.auth.stored_keys import StoredKeys
from services.runtime.capacity import RETRY_AFTER_S, Capacity
from services.runtime.randomness import new_uuid

T = TypeVar("T")

PROGRESS_ROLES = ("assistant", "tool")

CALLS_MAX = 10_000
"""Maximum tool calls of all messages together; each turn pairs them, at 20 µs each."""


def check_earlier_messages(query: agent_pb2.QueryRequest) -> None:
    """Raise InvalidRequest, naming the field, for a conversation that no model could have had.

    A call without a result is allowed; models then see a result that says so.
    """
    if sum(len(message.tool_calls) for message in (*query.history, *query.progress)) > CALLS_MAX:
        raise InvalidRequest.of("history", f"must not have more than {CALLS_MAX} toolCalls, with those of progress")
    open_calls: set[str] = set()
    history = ((f"history[{at}]", message) for at, message in enumerate(query.history))
    progress = ((f"progress[{at}]", message) for at, message in enumerate(query.progress))
    for name, message in chain(history, progress):
        _check_fields(message, name)
        if message.role == "tool":
            if message.tool_call_id not in open_calls:
                raise InvalidRequest.of(
                    f"{name}.toolCallId", "must be the id of an earlier call that has no result yet"
                )
            open_calls.remove(message.tool_call_id)
        ids = [call.id for call in message.tool_calls]
        if len(set(ids)) < len(ids):
            raise InvalidRequest.of(f"{name}.toolCalls", "must each have an id of its own")
        open_calls.update(ids)


def _check_fields(message: agent_pb2.EarlierMessage, name: str) -> None:
    if name.startswith("progress") and message.role not in PROGRESS_ROLES:
        raise InvalidRequest.of(f"{name}.role", f"must be one of {', '.join(PROGRESS_ROLES)}")
    if message.tool_calls and message.role != "assistant":
        raise InvalidRequest.of(f"{name}.toolCalls", "must be in messages of role assistant alone")
    if message.HasField("tool_call_id") != (message.role == "tool"):
        raise InvalidRequest.of(f"{name}.toolCallId", "must be in messages of role tool, and there alone")


class KeyLimits:
    def __init__(self, keys: StoredKeys, live: LiveRuns, *, ends_runs: bool = False) -> None:
        """With `ends_runs`, live runs are cancelled when their key ends."""
        self._keys = keys
        self._live = live
        self._ends_runs = ends_runs
        keys.listen(self.cancel_ended)

    def may_park(self, run: Run) -> bool:
        """Return whether the run may be parked: parked runs are not cancelled when their key ends."""
        return not (self._ends_runs and self._keys.find(run.identity.credential))

    def check_requester(self, run: Run) -> None:
        """Raise PermissionDenied if the run's user is suspended; no one's answer may resume such a run."""
        if user := self._keys.find_suspended(run.identity):
            raise PermissionDenied(f"the run's user {user!r} is suspended; release them first", runId=run.id)

    def is_suspended(self, who: Identity) -> bool:
        return bool(self._keys.find_suspended(who))

    def find_runs_max(self) -> int:
        """Return the maximum live runs for the caller's key across all replicas; 0: no limit."""
        key = self._keys.find(identity.require_identity().credential)
        return key.runs_max if key is not None else 0

    def check(self, request_id: str) -> None:
        """Raise QuotaExceeded for a new query if the caller's key has reached its limit of live runs here.

        Memory applies the limit across replicas when the query is stored.
        """
        credential = identity.require_identity().credential
        key = self._keys.find(credential)
        if key is None or not key.runs_max:
            return
        own = [run for run in self._live.all() if run.identity.credential == credential]
        if len(own) >= key.runs_max and all(run.query.request_id != request_id for run in own):
            raise QuotaExceeded(
                f"the API key has {key.runs_max} live runs already; try again when one has ended",
                retry_after_s=RETRY_AFTER_S,
                limit=key.runs_max,
            )

    def cancel_ended(self) -> None:
        """Cancel live runs whose keys have ended, and runs of suspended users unless they wait only for people."""
        for run in self._live.all():
            key = self._keys.find(run.identity.credential)
            has_ended = self._ends_runs and key is not None and key.has_ended
            has_gone = self.is_suspended(run.identity) and not find_due_at(run, self._live)
            if (has_ended or has_gone) and run.control.mode != "now":
                run.control.cancel()


WAITING_MAX = 8
"""Maximum queries of a chat that wait for its active run."""


@dataclass(frozen=True, slots=True)
class AdmittedQuery:
    query: agent_pb2.QueryRequest
    """The query, with defaults for all fields that its caller left out."""

    routed: AgentChoice
    chosen: ChosenVersion
    opens_chat: bool


class Admission:
    def __init__(
        self,
        live: LiveRuns,
        registry: Registry,
        pins: Pins,
        peers: Peers,
        capacity: Capacity,
        fair_use: FairUse,
        key_limits: KeyLimits,
    ) -> None:
        self._live = live
        self._pins = pins
        self._registry = registry
        self._peers = peers
        self._capacity = capacity
        self._fair_use = fair_use
        self._key_limits = key_limits
        self.is_draining = False
        """While True, only chats with a run here are admitted."""
        self.is_handing_over = False

    def drain(self) -> None:
        self.is_draining = True
        self._fair_use.close(stopping())

    def hand_over(self) -> None:
        self.is_handing_over = True

    async def admit(self, request: agent_pb2.QueryRequest, begin: Callable[[AdmittedQuery], Awaitable[T]]) -> T:
        """Call `begin`, which begins the query's run, when it is the tenant's turn.

        Raises:
            NotFound, InvalidRequest: The agent does not exist, the output form is invalid, or a result has no call.
            PermissionDenied: The agent is the tenant's own and names something not granted.
            NotFound, PermissionDenied: The caller may not use the chat, or may not end its runs.
            ChatBusy, QueueFull, Overloaded, QuotaExceeded: There is no capacity for the run.
        """
        check_output_format(request)
        check_earlier_messages(request)
        check_version(request)
        caller = identity.require_identity()
        # Not everybody may know of the runs that others have in the chat; the rest memory decides with the query.
        if any(run.state.is_stored and run.identity != caller for run in self._live.of_chat(request.chat_id)):
            await stored_runs.check_participant(self._peers, request.chat_id)
        has_turn = not self._live.of_chat(request.chat_id)
        if has_turn:
            self._check_capacity(request.chat_id)
            await self._fair_use.wait_for_turn(caller.tenant)
        try:
            own = [run for run in self._live.of_chat(request.chat_id) if run.identity.user == caller.user]
            routed = await choose(request, own, self._registry, self._peers)
            query = agent_pb2.QueryRequest()
            query.CopyFrom(request)
            query.chat_id = request.chat_id or new_uuid()
            query.request_id = request.request_id or new_uuid()
            query.agent_key = routed.agent.key
            query.role = request.role or "user"
            chosen = await choose_version(self._pins, query, routed.agent, self._registry.get_reachable(routed.agent))
            # An old version, and what a query tries, may name what the agent in force does not.
            self._registry.check_granted(chosen.agent)
            self._check_capacity(query.chat_id)
            self._check_busy(query)
            self._key_limits.check(query.request_id)
            return await begin(AdmittedQuery(query, routed, chosen, opens_chat=not request.chat_id))
        finally:
            if has_turn:
                self._fair_use.end_turn(caller.tenant)

    def _check_capacity(self, chat_id: str) -> None:
        # A chat that has a run here has no other place: its next one is handed over with it.
        if self.is_handing_over or (self.is_draining and not self._live.has_chat(chat_id)):
            raise stopping()
        if self._capacity.has_room_for(identity.require_identity().tenant):
            return
        if self._capacity.used >= self._capacity.size:
            raise Overloaded(
                f"{self._capacity.size} runs are live already; try again later", retry_after_s=RETRY_AFTER_S
            )
        raise QueueFull(
            "the tenant has as many live runs as are left for all others; answer those that wait for people, or try"
            " again later",
            retry_after_s=RETRY_AFTER_S,
        )

    def _check_busy(self, query: agent_pb2.QueryRequest) -> None:
        earlier, caller = self._live.of_chat(query.chat_id), identity.require_identity()
        own = (run for run in earlier if run.identity.user == caller.user)
        if not earlier or any(run.query.request_id == query.request_id for run in own):
            return
        if query.when_busy in ("interrupt", "rollback") and not all(may_end(run, caller) for run in earlier):
            raise PermissionDenied(
                f"whenBusy {query.when_busy} would end another user's run; the chat's owner may", runId=earlier[0].id
            )
        if query.when_busy == "reject":
            raise ChatBusy("the chat has a run already; wait, cancel it or enqueue", runId=earlier[0].id)
        if len(earlier) > WAITING_MAX:
            raise QueueFull(f"{WAITING_MAX} queries of this chat are waiting already", runId=earlier[0].id)
