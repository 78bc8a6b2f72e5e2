"""One run: what it is, what it has spent, who may stop it, and its scopes."""

from __future__ import annotations

import asyncio
from typing import Literal

from headrace.errors import BudgetExceeded, HeadraceError
from headrace.v1 import agent_pb2, common_pb2, memory_pb2
from services.orchestrator import ids
from services.orchestrator.answer import BlockNames
from services.orchestrator.budget import Spending
from services.orchestrator.definition import Definition
from services.orchestrator.feed import Feed
from services.orchestrator.peers import Peers
from services.orchestrator.run_log import RunLog
from services.orchestrator.scope import Scope

State = Literal["queued", "running", "completed", "cancelled", "failed"]


class Stopped(Exception):
    """The run ends here because somebody asked for it (cancel with mode after_step)."""


class Run:
    """A live run. Owned by `Runs`; the tasks of its scopes alone publish and commit."""

    def __init__(self, run_id: str, agent: Definition, query: agent_pb2.QueryRequest, peers: Peers) -> None:
        self.id = run_id
        self.chat_id = query.chat_id
        self.agent = agent
        self.query = query
        self.feed = Feed()
        self.names = BlockNames(run_id)
        self.spending = Spending(agent)
        self.state: State = "queued"
        self.created_at = ids.now_ms()
        self.my_turn = asyncio.Event()
        """Set when no earlier run of the chat is live."""
        self.work: asyncio.Task[str] | None = None
        self.stop: Literal["", "now", "after_step"] = ""
        self.stop_error: HeadraceError | None = None
        """Why the run was stopped, when it was not a caller's wish."""
        self.log = RunLog(query.chat_id, run_id, peers)
        self.main = Scope(self, agent.mode.lower())
        """The run itself."""
        self._scopes = [self.main]
        """Those that are open, each behind the one that opened it."""

    def cancel(self, mode: Literal["now", "after_step"] = "now") -> None:
        """Ask the run to end with run.cancel. Returns at once; repeating it is harmless."""
        if self.stop != "now":
            self.stop = mode
        if mode == "now":
            self._end_work()

    def interrupt(self, error: HeadraceError) -> None:
        """Ask the run to end with run.error: its process stops."""
        self.stop_error = error
        self._end_work()

    def out_of_time(self) -> BudgetExceeded:
        """End the work because the run's time is used up, and return the error it ends with."""
        self._end_work()
        return self.spending.exceeded("timeoutMs")

    def check_stop(self) -> None:
        """Raise Stopped between steps, when an after_step cancel is waiting."""
        if self.stop:
            raise Stopped

    def open_scope(self, stage: str, **ids: str | None) -> Scope:
        """A further scope of this run, with the ids that Scope takes; `leave` ends it."""
        scope = Scope(self, stage, **ids)
        self._scopes.append(scope)
        return scope

    def leave(self, scope: Scope) -> None:
        """Forget a scope that has nothing open."""
        self._scopes.remove(scope)

    def close(self, line: memory_pb2.RunLine, open_result: str) -> None:
        """Close what is open, give each call without a result `open_result`, and make the run's last lines.

        The lines are committed by `flush`; the terminal event is the caller's, after that.
        """
        lines = [step for scope in reversed(self._scopes) for step in scope.close(open_result)]
        line.events.first_seq = line.events.last_seq = self.feed.seq + 1
        self.log.keep([*lines, memory_pb2.LogLine(run=line)])

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
