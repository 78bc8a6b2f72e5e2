"""Users who act like a good client: they repeat requests with the same id, and reattach."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING

import grpc

from headrace.errors import HeadraceError, StaleLease
from headrace.streams import reading, rpc_errors
from headrace.v1 import agent_pb2, memory_pb2, operator_pb2
from services.runtime.randomness import RANDOM, new_uuid
from tests.support.order import TERMINAL, Event
from trials.simulation.outside.outside import ASKED_TOO
from trials.simulation.people.asked import Asked, Fork, StateMove, as_json, name_phase
from trials.simulation.people.gates import answer_gate
from trials.simulation.people.http import Refused, read_over_http
from trials.simulation.people.person import AGAIN_S, Person, is_passing

if TYPE_CHECKING:
    from trials.simulation.plan import Act, Interference

CALL_S = 20.0
"""Timeout of one answer."""

THINKS_S = (0.0, 0.0, 0.3)
"""Time between reading a state and changing it, so that changes are concurrent or follow another's commit."""


class User(Person):
    """One person who asks, and acts while the run is active."""

    async def do_all(self, acts: Sequence[Act], chat_ids: Sequence[str], started: Sequence[asyncio.Event]) -> None:
        """Do all acts, setting the event of each in `begun` when it starts."""
        for number, act in enumerate(acts):
            await asyncio.sleep(act.pause_s)
            started[number].set()
            message, agent = f"question {number} of {self.name}", act.agent
            if agent == "compact":
                message, agent = "/compact", "react"
            is_http = act.is_http and self.world.has_facade
            chat_id, request_id = chat_ids[act.chat], new_uuid()
            asked = Asked(chat_id, request_id, message, agent, act.when_busy, act.answer, is_http, act.is_recorded)
            async with asyncio.TaskGroup() as group:
                group.create_task(self.ask(asked))
                for interference in act.interferences:
                    group.create_task(self._interfere(interference, asked))

    async def ask(self, asked: Asked) -> None:
        """Ask until the query is answered, despite all faults."""
        self.asked.append(asked)
        async with asyncio.TaskGroup() as group:
            await self._ask(asked, group)

    async def _ask(self, asked: Asked, group: asyncio.TaskGroup) -> None:
        what = f"{asked.agent} in chat {asked.chat_id[:4]}: {asked.message} {asked.when_busy}"
        self.story.tell(f"{self.name} asks {what}")
        while asked.end is None and not asked.refusal and not asked.is_left:
            try:
                await self._follow(asked, group)
            except HeadraceError as error:
                if not is_passing(error):
                    asked.refusal = error.reason
                    break
            except Refused as refused:
                if not refused.is_passing:
                    asked.refusal = refused.reason
                    break
            except (grpc.aio.AioRpcError, OSError, EOFError, TimeoutError):
                pass
            if asked.end is None and not asked.is_left:
                await asyncio.sleep(AGAIN_S)
        self.story.tell(f"{self.name} was answered by run {asked.run_id[:4]}: {asked.outcome}")

    async def _follow(self, asked: Asked, group: asyncio.TaskGroup) -> None:
        asked.tries += 1
        asked.leaves = False
        if not asked.run_id:
            asked.events.clear()
        async with aclosing(read_over_http(asked) if asked.is_http else self._read_over_grpc(asked)) as events:
            await self._read(asked, events, group)

    async def _read_over_grpc(self, asked: Asked) -> AsyncGenerator[Event]:
        if asked.run_id:
            request = agent_pb2.AttachRequest(run_id=asked.run_id, last_seq=asked.events[-1]["seq"])
            call = self.agents.Attach(request)
        else:
            call = self.agents.Query(
                agent_pb2.QueryRequest(
                    message=asked.message,
                    agent_key=asked.agent,
                    chat_id=asked.chat_id,
                    request_id=asked.request_id,
                    when_busy=asked.when_busy or None,
                    record=asked.is_recorded or None,
                )
            )
        async with reading(call) as deltas:
            async for delta in deltas:
                yield as_json(delta)

    async def _read(self, asked: Asked, events: AsyncIterator[Event], group: asyncio.TaskGroup) -> None:
        async for event in events:
            if event["type"] == "run.start":
                asked.run_id = event["runId"]
            asked.events.append(event)
            self.story.enter_phase(name_phase(event))
            if event["type"] == "gate.open" and event["gateId"] not in asked.gates:
                asked.gates[event["gateId"]] = event
                group.create_task(answer_gate(self, asked.run_id, event, asked.answer))
            if asked.leaves or asked.is_left:
                return

    async def _interfere(self, interference: Interference, asked: Asked) -> None:
        await asyncio.sleep(interference.after_s)
        kind, run_id = interference.kind, asked.run_id
        if kind == "state":
            # Both start from one version, so only one of the changes may succeed.
            await asyncio.gather(self._change_state(asked.chat_id), self._change_state(asked.chat_id))
        elif kind == "fork":
            await self._fork(asked.chat_id)
        elif kind == "share":
            await self._share(asked.chat_id)
        elif kind == "leave":
            asked.leaves = True
        elif kind == "go away" and run_id:
            asked.is_left = True
        elif run_id:
            self.story.tell(f"{self.name} {kind} run {run_id[:4]}", count=f"user {kind}")
            match kind:
                case "attach":
                    self.readings.append((run_id, await self.read_again(run_id)))
                case "operator cancel":
                    await self._cancel_as_operator(run_id)
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
            self.cancels.append((asked, asyncio.get_running_loop().time()))

    async def _cancel_as_operator(self, run_id: str) -> None:
        request = operator_pb2.CancelRunsRequest(run_ids=[run_id])
        answer = await self.try_until_answered(lambda: self.operator.CancelRuns(request, timeout=CALL_S))
        if answer is None or [run.run_id for run in answer.runs] != [run_id]:
            self.problems.append(f"CancelRuns of {run_id} was answered {answer or self.refusal}")

    async def _share(self, chat_id: str) -> None:
        """Let another user read a chat."""
        request = memory_pb2.ShareChatRequest(chat_id=chat_id, shared_with=[f"user:{ASKED_TOO}"], request_id=new_uuid())
        if await self.try_until_answered(lambda: self.memory.ShareChat(request, timeout=CALL_S)) is not None:
            self.story.tell(f"{self.name} shares chat {chat_id[:4]}", count="user share")
            self.shared.append(chat_id)

    async def _fork(self, chat_id: str) -> None:
        """Copy a chat."""
        request = memory_pb2.ForkChatRequest(chat_id=chat_id, request_id=new_uuid())
        made = await self.try_until_answered(lambda: self.memory.ForkChat(request, timeout=CALL_S))
        if made is not None:
            self.story.tell(f"{self.name} has copied chat {chat_id[:4]} as {made.chat_id[:4]}", count="user fork")
            self.forks.append(Fork(chat_id, made.chat_id))

    async def _change_state(self, chat_id: str) -> None:
        """Read a chat's state and change it, once each; unanswered requests are not recorded."""
        loop = asyncio.get_running_loop()
        try:
            asked_s = loop.time()
            with rpc_errors():
                state = await self.memory.GetState(memory_pb2.GetStateRequest(chat_id=chat_id), timeout=CALL_S)
            self.states.append(StateMove(chat_id, False, state.version, asked_s, loop.time()))
            await asyncio.sleep(RANDOM.get().choice(THINKS_S))
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
        """Read a chat's state, repeating the request until it is answered."""
        asked_s = asyncio.get_running_loop().time()
        request = memory_pb2.GetStateRequest(chat_id=chat_id)
        state = await self.try_until_answered(lambda: self.memory.GetState(request, timeout=CALL_S))
        version = -1 if state is None else state.version
        self.states.append(StateMove(chat_id, False, version, asked_s, asyncio.get_running_loop().time()))

    async def read_again(self, run_id: str) -> list[Event]:
        """Return the run as a later reader sees it."""

        async def read() -> list[Event]:
            async with reading(self.agents.Attach(agent_pb2.AttachRequest(run_id=run_id))) as deltas:
                return [as_json(delta) async for delta in deltas]

        while True:
            events = await self.try_until_answered(read)
            if events is None or (events and events[-1]["type"] in TERMINAL):
                return events or []
            await asyncio.sleep(AGAIN_S)
