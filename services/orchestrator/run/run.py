"""A run: its query, its accounting parts, and its open scopes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from google.protobuf.message import Message

from headrace.run_states import State
from headrace.v1 import agent_pb2, common_pb2, memory_pb2
from services.orchestrator import ids
from services.orchestrator.agents.definition import Definition
from services.orchestrator.agents.grants import GrantsFile
from services.orchestrator.agents.mode_files import ModeCode, ModeFiles
from services.orchestrator.agents.version import AgentVersion
from services.orchestrator.money.budgets import Allowance, BudgetsFile, list_agents_below
from services.orchestrator.money.spending import Spending
from services.orchestrator.peers.recorder import LISTENER, TAKEN_OVER, Recorder
from services.orchestrator.peers.remote.agents import RemoteAgents
from services.orchestrator.peers.stubs import Peers
from services.orchestrator.run.answers.answer import BlockNames
from services.orchestrator.run.approvals.rules import Rules, RulesFile
from services.orchestrator.run.control.gates import Gates
from services.orchestrator.run.control.state import ChatPosition, RunState, SteerQueue, StopControl
from services.orchestrator.run.control.supplied_credentials import SuppliedCredentials
from services.orchestrator.run.events.feed import Feed
from services.orchestrator.run.log import FirstTurn, RunLog
from services.orchestrator.run.restore.restored_run import RestoredRun
from services.orchestrator.run.restore.resume_point import NEW, PARKED, ResumePoint, find_resets
from services.orchestrator.run.scope import Scope
from services.runtime.auth import identity
from services.runtime.clock import now_ms

if TYPE_CHECKING:
    from headrace.v1 import tools_pb2
    from services.orchestrator.run.answers.call import Call
    from services.orchestrator.run.scope_parts import SubagentTask

    Delegate: TypeAlias = Callable[[Scope, Peers, Call, SubagentTask], Awaitable[tools_pb2.ToolOutcome]]


@dataclass(frozen=True, slots=True)
class RunServices:
    peers: Peers
    agents: Mapping[str, Definition] = field(default_factory=dict[str, Definition])

    rules: RulesFile = field(default_factory=RulesFile)
    budgets: BudgetsFile = field(default_factory=BudgetsFile)
    modes: ModeFiles = field(default_factory=ModeFiles)
    delegate: Delegate | None = None
    secrets: tuple[str, ...] = ()
    """Values that must not appear in a recording."""

    grants: GrantsFile = field(default_factory=GrantsFile)
    """Grants for tenants' own agents."""

    remotes: RemoteAgents | None = None
    """Agents elsewhere; None in a replay, which contacts none."""

    on_rest: Callable[[str, bool], None] = lambda tenant, is_resting: None
    """Called with a tenant and True when its run begins to wait only for people, and with False when it stops."""


class ScopeTree:
    """The open scopes, each after its opener; the first is the run's own."""

    def __init__(self, main: Scope) -> None:
        self.begin(main)

    def begin(self, main: Scope) -> None:
        """Discard all scopes and begin with the run's own."""
        self.main = main
        self._open = [main]
        self._had: set[str | None] = set()

    def add(self, scope: Scope) -> Scope:
        self._open.append(scope)
        self._had.add(scope.context_id)
        return scope

    def had(self, context_id: str | None) -> bool:
        """Return whether this scope was ever opened below the run's own."""
        return context_id in self._had

    def remove(self, scope: Scope) -> None:
        self._open.remove(scope)

    def close_family(self, scope: Scope, line: memory_pb2.RunLine, open_result: str) -> list[memory_pb2.LogLine]:
        family = [other for other in reversed(self._open) if other.lineage[: scope.depth] == scope.lineage]
        self._open = [other for other in self._open if other not in family]
        return [step for other in family for step in (*other.close(open_result), *other.end(line))]

    def close_all(self, line: memory_pb2.RunLine, open_result: str) -> list[memory_pb2.LogLine]:
        return [step for scope in reversed(self._open) for step in (*scope.close(open_result), *scope.end(line))]

    def find_waiting_call(self, tool_id: str) -> Call | None:
        """Return an open call of a frontend tool, even before its gate is open; None without one."""
        return next((call for scope in self._open if (call := scope.find_waiting_call(tool_id))), None)


class Run:
    """One run. Only the tasks of its scopes publish and commit."""

    __slots__ = (
        "__weakref__",
        "block_names",
        "chat",
        "control",
        "credentials",
        "feed",
        "first_turn",
        "gates",
        "id",
        "identity",
        "log",
        "past",
        "query",
        "recorder",
        "scopes",
        "services",
        "spending",
        "state",
        "steering",
        "users",
        "version",
    )

    def __init__(
        self,
        run_id: str,
        agent: Definition,
        query: agent_pb2.QueryRequest,
        services: RunServices,
        past: ResumePoint = NEW,
        version: AgentVersion | None = None,
    ) -> None:
        self.id = run_id
        self.version = version
        """The version the run is pinned to; None if memory keeps no versions."""
        self.identity = identity.require_identity()
        self.query = query
        self.services = services
        self.past = past
        is_first = any(event.HasField("chat_start") for event in past.history)
        self.chat = ChatPosition(is_first=is_first, owner=past.chat_owner)
        self.feed = Feed(past.seq, past.history)
        self.block_names = BlockNames.after(run_id, past.restored.messages())
        self.scopes = ScopeTree(Scope(self, agent, agent.primary))
        list_agents = partial(_list_agents, services.agents, self.scopes)
        allowance = Allowance(run_id, self.identity, services.peers, services.budgets, list_agents)
        self.spending = Spending(agent, past.restored.charges, allowance)
        self.state = RunState(
            past.history[0].timestamp if past.history else now_ms(),
            is_stored=bool(past.reason),
            on_rest=partial(services.on_rest, self.identity.tenant),
        )
        self.control = StopControl(self.state, is_live=not past.restored.steps)
        self.log = RunLog(
            query.chat_id,
            run_id,
            services.peers,
            self.spending.unlogged,
            self.feed.release,
            generation=past.generation,
            step=past.restored.steps,
            covered_seq=past.seq,
        )
        self.gates = Gates(past.restored.events)
        self.credentials = SuppliedCredentials()
        self.steering = SteerQueue(past.restored.find_payloads("request_steer"))
        self.recorder = self._open_recorder()
        self.feed.recorder = self.control.recorder = self.recorder
        self.users = 0
        """Number of people's calls being answered."""
        self.first_turn: FirstTurn | None = None
        """None once its work has used the response to the stored query, and if nothing was requested with it."""

    @property
    def main(self) -> Scope:
        return self.scopes.main

    def _open_recorder(self) -> Recorder | None:
        """Return a recorder if the run must be recorded; it lacks an earlier owner's part."""
        if not is_recorded(self.query, self.agent) and LISTENER.get() is None:
            return None
        recorder = Recorder()
        recorder.problem = TAKEN_OVER if self.past.reason else ""
        return recorder

    def note_received(self, request: Message) -> None:
        """Record a request that this process received about the run."""
        if self.recorder is not None:
            self.recorder.note_received(request)

    def list_agents(self) -> set[str]:
        """List all agents that the run may ask, including its own."""
        return _list_agents(self.services.agents, self.scopes)

    def find_mode(self, name: str) -> ModeCode | None:
        """Return the code of an operator's mode: the pinned version, if still known."""
        digest = self.version.modes.get(name, "") if self.version is not None else ""
        return self.services.modes.find(name, digest)

    @property
    def agent(self) -> Definition:
        return self.scopes.main.agent

    @property
    def chat_id(self) -> str:
        return self.query.chat_id

    @property
    def restored(self) -> RestoredRun:
        return self.past.restored

    @property
    def rules(self) -> Rules:
        return self.services.rules.current

    @property
    def is_scheduled(self) -> bool:
        """Whether a schedule began it, so that nobody may be watching."""
        return ids.SCHEDULED.fullmatch(self.query.request_id) is not None

    @property
    def answer_timeout_ms(self) -> int:
        """How long its approvals wait for a person."""
        return self.rules.choose_timeout_ms(is_scheduled=self.is_scheduled)

    @property
    def usage(self) -> common_pb2.Usage:
        return self.spending.usage

    @property
    def generation(self) -> int:
        return self.log.generation

    @property
    def pending_query(self) -> agent_pb2.QueryRequest | None:
        return None if self.state.is_stored else self.query

    @property
    def hears(self) -> bool:
        """Whether a message still reaches the model, or is passed on at the end."""
        # A run that has just been taken over started earlier.
        has_begun = self.state.name != State.QUEUED or any(event.HasField("run_start") for event in self.past.history)
        return has_begun and not self.steering.is_over

    async def drop_work(self, agent: Definition) -> None:
        """Discard the work prepared before the run's start; `agent` is the one it was prepared with."""
        work, self.control.work = self.control.work, None
        if work is not None:
            work.cancel()
            await asyncio.gather(work, return_exceptions=True)
        self.scopes.begin(Scope(self, agent, agent.primary))

    def hold_resets(self) -> memory_pb2.AppendRequest | None:
        """Publish the resets for readers; None if there are none."""
        if self.past.reason == PARKED:
            return None
        lines: list[memory_pb2.LogLine] = []
        for reset in find_resets(self.id, self.restored, self.past.reason, self.past.history):
            event = self.feed.publish(reset.payload, held=True, subagent_id=reset.subagent_id, task_id=reset.task_id)
            lines.append(memory_pb2.LogLine(event=memory_pb2.EventLine(event=event, context_id=reset.context_id)))
        return self.log.keep(lines)

    def cancel_wait(self, asked_at: int) -> None:
        """Cancel the run if it waits only for people, at gates that were open at `asked_at`.

        A run that was just taken over is checked once it reaches its wait.
        """

        def is_waiting() -> bool:
            gates, clock = self.gates.list_waiting(), self.spending.clock
            return clock.is_paused and len(gates) >= clock.waits and all(gate.opened_at <= asked_at for gate in gates)

        if self.control.is_live:
            if is_waiting():
                self.control.cancel()
        else:
            self.control.cancel_when(is_waiting)
            self.spending.clock.on_pause = self.control.review

    @property
    def is_quiet(self) -> bool:
        """Whether the run waits only for people, no call is talking to it, and its log is complete."""
        control = self.control
        is_undisturbed = control.is_live and not (control.mode or control.must_end or self.log.is_lost or self.users)
        return is_undisturbed and self.spending.clock.is_paused and self.log.is_quiet

    @contextmanager
    def in_use(self) -> Generator[None]:
        """Count a person's call as in progress inside the block."""
        self.users += 1
        try:
            yield
        finally:
            self.users -= 1

    def park(self) -> None:
        """Drop the work: the run has no owner any more, and its readers wait for the next one."""
        self.feed.is_parked = True
        self.log.lose()
        self.control.give_up()

    def expire(self) -> None:
        self.control.expire(self.spending.make_exceeded("timeoutMs"))

    @contextmanager
    def waiting(self) -> Generator[None]:
        """Count the block as a wait for a person, which is not charged."""
        with self.spending.clock.waiting():
            self.state.wait()
            try:
                yield
            finally:
                if self.spending.clock.waits == 1:
                    self.state.resume()

    def is_waited_for(self, tool_id: str) -> bool:
        """Return whether a person may submit for this id, or could have."""
        return tool_id in self.gates or self.restored.awaits(tool_id) or bool(self.scopes.find_waiting_call(tool_id))

    def close_scopes(
        self, line: memory_pb2.RunLine, open_result: str, unrestored: Sequence[memory_pb2.LogLine] = ()
    ) -> list[memory_pb2.LogLine]:
        """Give each call without a result `open_result`; return the lines for the log, after those of `unrestored`."""
        self.gates.close()
        return [*unrestored, *self.scopes.close_all(line, open_result)]

    def keep_end(self, line: memory_pb2.RunLine, lines: Sequence[memory_pb2.LogLine] = ()) -> None:
        """Store the run's last lines. The caller publishes the terminal event after `flush`."""
        line.events.first_seq = line.events.last_seq = self.feed.seq + 1
        self.log.keep([*lines, memory_pb2.LogLine(run=line)])

    async def flush(self) -> None:
        await self.log.flush()
        self.feed.release_all()

    def as_start(self) -> agent_pb2.RunStart:
        return agent_pb2.RunStart(
            run_id=self.id,
            chat_id=self.chat_id,
            agent_key=self.agent.key,
            agent_version=self.version.number if self.version else None,
            agent_version_hash=self.version.hash if self.version else None,
        )

    def as_run(self) -> agent_pb2.Run:
        return agent_pb2.Run(
            run_id=self.id,
            chat_id=self.chat_id,
            agent_key=self.agent.key,
            state=self.state.name,
            usage=self.usage,
            budget_left=self.spending.measure_left(),
            created_at=self.state.created_at,
            updated_at=self.log.updated_at,
            agent_version=self.version.number if self.version else None,
            agent_version_hash=self.version.hash if self.version else None,
            user=self.identity.user,
        )


def is_recorded(query: agent_pb2.QueryRequest, agent: Definition | None) -> bool:
    """Return whether to record a run: its query decides, else its agent, if known."""
    return query.record if query.HasField("record") else agent is not None and agent.record


def _list_agents(known: Mapping[str, Definition], scopes: ScopeTree) -> set[str]:
    """List all agents that a run may ask, including its own."""
    main, existing = scopes.main, {key.casefold(): agent for key, agent in known.items()}

    def find_keys(names: Collection[str]) -> list[str]:
        """Return the agents' keys in their own spelling; names may use another case."""
        return [existing[name.casefold()].key if name.casefold() in existing else name for name in names]

    roots = [main.agent.key, *find_keys([*main.agent.subagents, *main.attention.agents])]
    return list_agents_below(roots, lambda key: find_keys(known[key].subagents) if key in known else ())
