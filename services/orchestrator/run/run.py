"""One run: what it is, what it has spent, who may stop it, and its scopes."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Generator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Literal, TypeAlias

from headrace.errors import BudgetExceeded, HeadraceError
from headrace.v1 import agent_pb2, common_pb2, memory_pb2
from services.orchestrator import ids
from services.orchestrator.agents.definition import Definition, StageSettings
from services.orchestrator.peers.stubs import Peers
from services.orchestrator.run.answers.answer import BlockNames
from services.orchestrator.run.approvals.file import RulesFile
from services.orchestrator.run.budget import Spending
from services.orchestrator.run.events.feed import Feed
from services.orchestrator.run.replay.attempt_resets import resets
from services.orchestrator.run.replay.resume_point import NEW, Past
from services.orchestrator.run.scope import Scope
from services.orchestrator.run.single_waiter_event import Flag
from services.orchestrator.run.steer_queue import Steer, Steering
from services.runtime.auth import identity

if TYPE_CHECKING:
    from headrace.v1 import tools_pb2
    from services.orchestrator.run.answers.call import Call
    from services.orchestrator.run.subagent_task import SubagentTask

    Delegate: TypeAlias = Callable[[Scope, Peers, Call, SubagentTask], Awaitable[tools_pb2.ToolOutcome]]

State = Literal["queued", "running", "waiting", "completed", "cancelled", "failed"]


SETTLING_S = 0.05
"""In which siblings of what goes on first go on too; each has but recorded lines to go through."""


class Stopped(Exception):
    """The run ends here because somebody asked for it (cancel with mode after_step)."""


class Run:
    """A live run. Owned by `Runs`; the tasks of its scopes alone publish and commit."""

    __slots__ = (
        "_resets",
        "_scopes",
        "_settling",
        "agent",
        "agents",
        "ask_next",
        "begun",
        "chat_id",
        "checkpoint_id",
        "created_at",
        "delegate",
        "feed",
        "id",
        "identity",
        "is_accepted",
        "is_given_up",
        "is_live",
        "late_error",
        "log",
        "main",
        "my_turn",
        "names",
        "notices",
        "on_rest",
        "opens_chat",
        "past",
        "query",
        "recording",
        "rolls_back",
        "rules",
        "spending",
        "state",
        "steering",
        "stop",
        "stop_error",
        "turns",
        "unstored_end",
        "waits",
        "work",
    )

    def __init__(
        self,
        run_id: str,
        agent: Definition,
        query: agent_pb2.QueryRequest,
        peers: Peers,
        past: Past | None = None,
    ) -> None:
        self.id = run_id
        self.identity = identity.require_identity()
        """Whose it is: its tasks work for them, and nobody else finds it."""
        self.chat_id = query.chat_id
        self.agent = agent
        self.query = query
        self.past = past = past or NEW
        self.recording = past.recording
        self.feed = Feed(past.seq, past.history)
        self.names = BlockNames.after(run_id, past.recording.messages())
        self.spending = Spending(agent)
        self.state: State = "queued"
        self.created_at = past.history[0].timestamp if past.history else ids.now_ms()
        self.begun = Flag()
        """Set when readers have its beginning. Its work may be ahead of that, but asks only, and no model."""
        self.my_turn = Flag()
        """Set when no earlier run of the chat is live."""
        self.work: asyncio.Task[str] | None = None
        self.stop: Literal["", "now", "after_step"] = ""
        self.opens_chat = any(event.HasField("chat_start") for event in past.history)
        """Whether its query is the chat's first."""
        self.checkpoint_id: int | None = None
        """What taking it back goes back to: before its query, or what it has taken back itself; None: nothing yet."""
        self.rolls_back: list[Run] = []
        """Cancelled runs whose messages this one's model is not to see."""
        self.notices: list[tuple[str, str]] = []
        """Code and text of what its user is told first."""
        self.stop_error: HeadraceError | None = None
        """Why the run was stopped, when it was not a caller's wish."""
        self.late_error: BudgetExceeded | None = None
        """What it ends with when its time is used up."""
        self.is_accepted = bool(past.reason)
        """Whether it is in the log, and ours."""
        self.unstored_end: common_pb2.Failure | None = None
        """What readers were told it ended with, where its log takes no end."""
        self.is_live = not past.recording.steps
        """Whether it does what no earlier owner has done."""
        self._settling: asyncio.TimerHandle | None = None
        self.is_given_up = False
        """Whether it is left to its next owner."""
        self.log = past.log(query.chat_id, run_id, peers)
        self.waits = past.waits()
        self.agents: Mapping[str, Definition] = {}
        """Those there are, by key."""
        self.steering = Steering(past.recording.told("request_steer"))
        self.ask_next: Callable[[Run, Steer], Awaitable[None]] | None = None
        """Has a message, which this run did not hear, asked behind it; set by who has the chat's runs."""
        self.on_rest: Callable[[bool], None] = lambda _: None
        """Called when it begins to wait for people alone, and when it goes on; set by who counts runs at work."""
        self.delegate: Delegate | None = None
        """Has a sub-agent work; set where the modes are known, above all that may call one."""
        self.turns: Counter[str | None] = Counter()
        """Answers of models by sub-agent, those of its tasks included; None: the run's own."""
        self.rules = RulesFile()
        """Which calls people are asked about, at any moment."""
        self.main = Scope(self, agent.primary)
        """The run itself."""
        self._scopes = [self.main]
        """Those that are open, each behind the one that opened it."""

    def cancel(self, mode: Literal["now", "after_step"] = "now") -> None:
        """Ask the run to end with run.cancel. Returns at once; repeating it is harmless."""
        if self.stop != "now":
            self.stop = mode
        if mode == "now" and self.is_live:
            self._end_work()

    def go_live(self) -> None:
        """Note that the recording is used up somewhere: what was open is open again in a moment, and the run may be
        cancelled then. A cancel before that would leave calls without results and tasks without an end.
        """
        if not self.is_live and self._settling is None:
            self._settling = asyncio.get_running_loop().call_later(SETTLING_S, self._settled)

    def _settled(self) -> None:
        self.is_live = True
        if self.stop == "now":
            self._end_work()

    @property
    def pending_query(self) -> agent_pb2.QueryRequest | None:
        """Its query, as long as the log may not have it."""
        return None if self.is_accepted else self.query

    @property
    def is_stopping(self) -> bool:
        """Whether nothing more is to begin."""
        return bool(self.stop) and self.is_live

    def give_up(self) -> None:
        """Leave the run to its next owner: nothing is said of how it ends."""
        self.is_given_up = True
        self._end_work()

    async def tell_readers_to_reset(self) -> None:
        """Commit and send what a new owner says first. Readers see nothing of it, or behind it, before that."""
        await self.log.commit(self._resets)
        for line in self._resets.lines:
            self.feed.release(line.event.event.seq)

    def go_on(self) -> None:
        """Go on with the run of an earlier owner: from now on its events are ours."""
        known = [event.seq for event in self.past.history if event.HasField("run_start")]
        lines = resets(self.id, self.recording, self.past.reason, max(known, default=0))
        for line in lines:
            self.feed.publish("attempt_reset", line.event, held=True)
        self._resets = self.log.keep([memory_pb2.LogLine(event=line) for line in lines])

    def interrupt(self, error: HeadraceError) -> None:
        """Ask the run to end with run.error: its process stops."""
        self.stop_error = error
        self._end_work()

    def out_of_time(self) -> None:
        """End the work because the run's time is used up."""
        self.late_error = self.spending.exceeded("timeoutMs")
        self._end_work()

    @property
    def hears(self) -> bool:
        """Whether a message for its model would come before one of its turns, or be passed on."""
        return self.state != "queued" and not self.steering.is_over

    def check_stop(self) -> None:
        """Raise Stopped between steps, when an after_step cancel is waiting."""
        if self.is_stopping:
            raise Stopped

    def open_scope(self, settings: StageSettings, **ids: str | None) -> Scope:
        """A further scope of this run, with the ids that Scope takes; `leave` ends it."""
        scope = Scope(self, settings, **ids)
        self._scopes.append(scope)
        return scope

    def leave(self, scope: Scope) -> None:
        """Forget a scope that has nothing open."""
        self._scopes.remove(scope)

    def close_within(self, scope: Scope, line: memory_pb2.RunLine, open_result: str) -> list[memory_pb2.LogLine]:
        """Close and forget the scope of a sub-agent and those below it, innermost first; the lines for the log."""
        family = [other for other in reversed(self._scopes) if other.lineage[: scope.depth] == scope.lineage]
        self._scopes = [other for other in self._scopes if other not in family]
        return [step for other in family for step in (*other.close(open_result), *other.end(line))]

    def close(self, line: memory_pb2.RunLine, open_result: str) -> None:
        """Close what is open, give each call without a result `open_result`, and make the run's last lines.

        The lines are committed by `flush`; the terminal event is the caller's, after that.
        """
        self.waits.close()
        scopes = reversed(self._scopes)
        lines = [step for scope in scopes for step in (*scope.close(open_result), *scope.end(line))]
        line.events.first_seq = line.events.last_seq = self.feed.seq + 1
        self.log.keep([*lines, memory_pb2.LogLine(run=line)])

    @contextmanager
    def waiting(self) -> Generator[None]:
        """The run waits for a person inside this block; that time is not charged."""
        with self.spending.clock.waiting():
            if self.spending.clock.waits == 1:
                self.on_rest(True)
            self.state = "waiting"
            try:
                yield
            finally:
                if self.spending.clock.waits == 1:
                    self.state = "running"
                    self.on_rest(False)

    def is_waited_for(self, tool_id: str) -> bool:
        """Whether a person may submit for this id, or could have."""
        if tool_id in self.waits or self.recording.awaits(tool_id):
            return True
        return any(scope.calls_waiting_for(tool_id) for scope in self._scopes)

    async def flush(self) -> None:
        """Commit what is not known to be committed; readers have everything after that."""
        await self.log.flush()
        self.feed.release_all()

    def as_run(self) -> agent_pb2.Run:
        """The run as GetRun gives it."""
        return agent_pb2.Run(
            run_id=self.id,
            chat_id=self.chat_id,
            agent_key=self.agent.key,
            state=self.state,
            usage=self.usage,
            budget_left=self.spending.left(),
            created_at=self.created_at,
            updated_at=self.log.updated_at,
        )

    @property
    def usage(self) -> common_pb2.Usage:
        return self.spending.usage

    def _end_work(self) -> None:
        self.my_turn.set()
        if self.work is not None:
            self.work.cancel()
