"""People who use the services as a good client does: they ask again under the same id, and attach again."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import grpc

from headrace.errors import HeadraceError, StaleLease
from headrace.streams import reading, rpc_errors
from headrace.v1 import agent_pb2, agent_pb2_grpc, memory_pb2, memory_pb2_grpc
from services.runtime import json_form
from services.runtime.clock import now_ms
from services.runtime.randomness import RANDOM, new_uuid
from services.runtime.rpc.channels import open_channel
from tests.order import TERMINAL, Event
from tests.simulation.bugs import USER_BUGS

if TYPE_CHECKING:
    from tests.simulation.plan import Act, Interference
    from tests.simulation.world.world import World

AGAIN_S = 0.5
"""Pause before anything is asked again."""

PHASES = {"reasoning": "model", "content": "model", "attempt": "model", "tool": "tool", "compaction": "compaction"}
"""What a run does behind an event, by the first word of its type."""

CALL_S = 20.0
"""Limit of one answer."""


@dataclass
class Asked:
    """One query as its reader has seen it."""

    chat_id: str
    request_id: str
    message: str
    agent: str
    when_busy: str = ""
    run_id: str = ""
    events: list[Event] = field(default_factory=list[Event])
    tries: int = 0
    """Streams that were opened."""
    refusal: str = ""
    """Reason of an error that says: never."""
    leaves: bool = False
    """Whether its reader is about to leave, and to come back."""
    is_left: bool = False
    """Whether its reader is about to leave for good, or has."""

    @property
    def end(self) -> Event | None:
        return self.events[-1] if self.events and self.events[-1]["type"] in TERMINAL else None

    @property
    def outcome(self) -> str:
        """In a word."""
        if self.end is None:
            return self.refusal or "open"
        return self.end.get("error", {}).get("code", self.end["type"])


def find_phase(people: Iterable[User]) -> str:
    """Return what the newest open run of these people does, by the last event that its reader has seen."""
    open_runs = [
        asked
        for user in people
        for asked in user.asked
        if asked.end is None and not asked.refusal and not asked.is_left
    ]
    if not open_runs:
        return "idle"
    events = open_runs[-1].events
    return PHASES.get(events[-1]["type"].partition(".")[0], "between") if events else "start"


@dataclass(frozen=True, slots=True)
class StateMove:
    """A read or a change of a chat's state, from question to answer."""

    chat_id: str
    is_change: bool
    version: int
    asked_s: float
    answered_s: float


class User:
    """One person, over any of the orchestrators."""

    def __init__(self, name: str, orchestrators: str, memory: str, world: World) -> None:
        self.name = name
        self._addresses = orchestrators, memory
        self._world, self._story = world, world.story
        self.asked: list[Asked] = []
        self.steers: list[tuple[str, str]] = []
        """Chat and text of each that was answered."""
        self.cancels: list[tuple[Asked, int]] = []
        """Runs whose cancel was answered, and when."""
        self.states: list[StateMove] = []

    async def __aenter__(self) -> User:
        self._channels = [open_channel(address) for address in self._addresses]
        wrap = USER_BUGS.get(self._world.bug, lambda real: real)
        self.agents: Any = wrap(agent_pb2_grpc.AgentServiceStub(self._channels[0]))
        self.memory: Any = memory_pb2_grpc.MemoryServiceStub(self._channels[1])
        return self

    async def __aexit__(self, *_: object) -> None:
        for channel in self._channels:
            await channel.close()

    async def do_all(self, acts: Sequence[Act], chat_ids: Sequence[str], begun: Sequence[asyncio.Event]) -> None:
        """Do all acts, setting the event of each in `begun` when it begins."""
        for number, act in enumerate(acts):
            await asyncio.sleep(act.pause_s)
            begun[number].set()
            message, agent = f"question {number} of {self.name}", act.agent
            if agent == "compact":
                message, agent = "/compact", "react"
            asked = Asked(chat_ids[act.chat], new_uuid(), message, agent, act.when_busy)
            async with asyncio.TaskGroup() as group:
                group.create_task(self.ask(asked))
                for interference in act.interferences:
                    group.create_task(self._interfere(interference, asked))

    async def ask(self, asked: Asked) -> None:
        """Have a query answered, whatever happens meanwhile."""
        self.asked.append(asked)
        what = f"{asked.agent} in chat {asked.chat_id[:4]}: {asked.message} {asked.when_busy}"
        self._story.tell(f"{self.name} asks {what}")
        while asked.end is None and not asked.refusal and not asked.is_left:
            try:
                await self._follow(asked)
            except HeadraceError as error:
                if not is_passing(error):
                    asked.refusal = error.reason
                    break
            except grpc.aio.AioRpcError:
                pass
            if asked.end is None and not asked.is_left:
                await asyncio.sleep(AGAIN_S)
        self._story.tell(f"{self.name} was answered by run {asked.run_id[:4]}: {asked.outcome}")

    async def _follow(self, asked: Asked) -> None:
        asked.tries += 1
        asked.leaves = False
        if asked.run_id:
            request = agent_pb2.AttachRequest(run_id=asked.run_id, last_seq=asked.events[-1]["seq"])
            call = self.agents.Attach(request)
        else:
            asked.events.clear()
            call = self.agents.Query(
                agent_pb2.QueryRequest(
                    message=asked.message,
                    agent_key=asked.agent,
                    chat_id=asked.chat_id,
                    request_id=asked.request_id,
                    when_busy=asked.when_busy or None,
                )
            )
        async with reading(call) as deltas:
            await self._read(asked, deltas)

    async def _read(self, asked: Asked, deltas: AsyncIterator[agent_pb2.AgentDelta]) -> None:
        async for delta in deltas:
            event = as_json(delta)
            if event["type"] == "run.start":
                asked.run_id = event["runId"]
            asked.events.append(event)
            if event["type"] == "approval.ask":
                await self._decide(asked, event["approvalId"])
            if asked.leaves or asked.is_left:
                return

    async def _decide(self, asked: Asked, approval_id: str) -> None:
        payload = json.dumps({"decision": "reject"})
        request = agent_pb2.SubmitRequest(
            run_id=asked.run_id, approval_id=approval_id, payload=payload, request_id=approval_id
        )
        await self.try_until_answered(lambda: self.agents.Submit(request, timeout=CALL_S))

    async def _interfere(self, interference: Interference, asked: Asked) -> None:
        await asyncio.sleep(interference.after_s)
        kind, run_id = interference.kind, asked.run_id
        if kind == "state":
            await self._change_state(asked.chat_id)
        elif kind == "leave":
            asked.leaves = True
        elif kind == "go away" and run_id:
            asked.is_left = True
        elif run_id:
            self._story.tell(f"{self.name} {kind} run {run_id[:4]}", count=f"user {kind}")
            match kind:
                case "attach":
                    await self.read_again(run_id)
                case "steer":
                    await self._steer(asked)
                case _:
                    await self._cancel(asked, "after_step" if "after_step" in kind else "now")

    async def _steer(self, asked: Asked) -> None:
        text = f"steer {new_uuid()}"
        request = agent_pb2.SteerRequest(run_id=asked.run_id, message=text, request_id=new_uuid())
        answer = await self.try_until_answered(lambda: self.agents.Steer(request, timeout=CALL_S))
        if answer is not None:
            self.steers.append((asked.chat_id, text))

    async def _cancel(self, asked: Asked, mode: str) -> None:
        request = agent_pb2.CancelRequest(run_id=asked.run_id, mode=mode)
        answer = await self.try_until_answered(lambda: self.agents.Cancel(request, timeout=CALL_S))
        if answer is not None and mode == "now" and answer.state in ("queued", "running", "waiting"):
            self.cancels.append((asked, now_ms()))

    async def _change_state(self, chat_id: str) -> None:
        """Read a chat's state and change it, once each; what is not answered says nothing."""
        loop = asyncio.get_running_loop()
        try:
            asked_s = loop.time()
            with rpc_errors():
                state = await self.memory.GetState(memory_pb2.GetStateRequest(chat_id=chat_id), timeout=CALL_S)
            self.states.append(StateMove(chat_id, False, state.version, asked_s, loop.time()))
            asked_s = loop.time()
            change = memory_pb2.UpdateStateRequest(
                chat_id=chat_id, expected_version=state.version, state=json.dumps({"by": self.name})
            )
            with rpc_errors():
                made = await self.memory.UpdateState(change, timeout=CALL_S)
            self.states.append(StateMove(chat_id, True, made.version, asked_s, loop.time()))
        except (HeadraceError, grpc.aio.AioRpcError) as error:
            if not isinstance(error, StaleLease):
                await asyncio.sleep(RANDOM.get().uniform(0, AGAIN_S))

    async def read_state(self, chat_id: str) -> None:
        """Read a chat's state, however often it must be asked for."""
        asked_s = asyncio.get_running_loop().time()
        request = memory_pb2.GetStateRequest(chat_id=chat_id)
        state = await self.try_until_answered(lambda: self.memory.GetState(request, timeout=CALL_S))
        version = -1 if state is None else state.version
        self.states.append(StateMove(chat_id, False, version, asked_s, asyncio.get_running_loop().time()))

    async def try_until_answered(self, call: Any) -> Any:
        """Return the answer; None for an error that says: never."""
        while True:
            try:
                with rpc_errors():
                    return await call()
            except HeadraceError as error:
                if not is_passing(error):
                    return None
            except grpc.aio.AioRpcError:
                pass
            await asyncio.sleep(AGAIN_S)

    async def read_again(self, run_id: str) -> list[Event]:
        """Return the run as somebody sees it who comes later."""

        async def read() -> list[Event]:
            async with reading(self.agents.Attach(agent_pb2.AttachRequest(run_id=run_id))) as deltas:
                return [as_json(delta) async for delta in deltas]

        while True:
            events = await self.try_until_answered(read)
            if events is None or (events and events[-1]["type"] in TERMINAL):
                return events or []
            await asyncio.sleep(AGAIN_S)


def is_passing(error: HeadraceError) -> bool:
    return error.retriable or error.code is grpc.StatusCode.UNAVAILABLE


def as_json(delta: agent_pb2.AgentDelta) -> Event:
    sent = json_form.event(delta)
    assert sent is not None
    return json.loads(sent.json)
