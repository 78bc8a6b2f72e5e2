"""The argument of a mode file's function (docs/guides/modes.md): durable steps on top of what every mode has.

Each `await` on it is a step of the scope. After a crash the function runs again, and each step returns its recorded
result; the first step that differs from the record ends the run with MODE_CHANGED.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from random import Random
from typing import Any, TypeVar

import orjson

from headrace.errors import HeadraceError, ModeChanged, StaleLease, to_failure
from headrace.v1 import tools_pb2
from services.orchestrator.agents.definition import StageSettings
from services.orchestrator.calls.own_tools import subagent
from services.orchestrator.ids import derived_id
from services.orchestrator.mode_api import answering
from services.orchestrator.mode_api.answering import (
    CallResult,
    StepCount,
    dump_calls,
    keep,
    make_fit,
    read_agent_result,
    run_calls,
    say_text,
)
from services.orchestrator.mode_api.mode_run import CODE_FAILED, TOGETHER_MAX, ModeRun, Stopped
from services.orchestrator.mode_api.plan import Task
from services.orchestrator.people.forms import ASK_HUMAN
from services.orchestrator.run import session_state
from services.orchestrator.run.restore.fit import Kept
from services.orchestrator.turn.conversation import Conversation
from services.runtime.clock import now_ms

__all__ = ["CallResult", "Mode", "Task"]

STATE = "mode."
"""Prefix of the chat state's fields that modes store."""

T = TypeVar("T")


class Mode(ModeRun):
    """One scope of a run with an operator's mode; each task of its plan has its own."""

    def __init__(
        self, conversation: Conversation, message: str, count: StepCount, offered: Sequence[tools_pb2.Tool]
    ) -> None:
        """`offered` are the tools of all the agent's stages."""
        super().__init__(conversation, message)
        self._count = count
        self._offered = offered
        self._fit = conversation.scope.fit = make_fit(conversation.scope)
        self._user: asyncio.Task[Any] | None = None
        """The task that is taking a step; None between steps."""
        self._is_closed = False
        self._ids = 0
        self.finish_reason = ""
        """The finish reason of `answer`; empty until then."""
        section = self.agent.custom
        assert section is not None, "the mode has its section"
        self.params: dict[str, Any] = dict(section.params)
        """The agent file's `custom.params`."""
        self.random = Random(f"{conversation.run.id}/{conversation.scope.context_id}")
        """Random numbers that are the same when the run is replayed."""

    @classmethod
    def open(cls, run: ModeRun, steps_max: int) -> Mode:
        """Return the mode's view of a run or sub-agent."""
        conversation = run.conversation
        if run.agent.named_stages:
            own = answering.select_tools(conversation.tools, run.settings)
            return cls(
                Conversation(conversation.scope, conversation.peers, own),
                run.message,
                StepCount(steps_max),
                conversation.tools,
            )
        return cls(conversation, run.message, StepCount(steps_max), conversation.tools)

    def new_id(self) -> str:
        """Return 8 hex digits, the same when the run is replayed."""
        self._ids += 1
        return derived_id(self.conversation.run.id, self.conversation.scope.context_id or "", "mode", str(self._ids))

    async def now_ms(self) -> int:
        """Return the recorded time in Unix milliseconds."""
        return await self.once("now", now_ms)

    async def once(self, name: str, make: Callable[[], T | Awaitable[T]]) -> T:
        """Call `make` once, record its value and return it; use it for everything outside this API.

        The value must be representable in JSON. After a crash before it is recorded, `make` is called again.
        """
        async with self._taking_step(f"the value {name!r}") as step:
            recorded = self._fit.recall_value(name)
            if recorded is None:
                self.conversation.run.control.go_live()
                made = make()
                recorded = orjson.dumps(await made if inspect.isawaitable(made) else made)
                await keep(self.conversation.scope, step, name, Kept(recorded))
            return orjson.loads(recorded)

    async def load_state(self, name: str, default: Any = None) -> Any:
        """Return the value that `save_state` stored in the chat under this name, in this run or an earlier one."""

        async def load() -> Any:
            values = (await session_state.load(self.conversation.run.main, self.conversation.peers)).values
            return orjson.loads(values[f"{STATE}{name}"]) if f"{STATE}{name}" in values else default

        return await self.once(f"state {name}", load)

    async def save_state(self, name: str, value: Any) -> None:
        """Store a value for later runs of the chat."""
        field = {f"{STATE}{name}": orjson.dumps(value)}

        async def save() -> bool:
            await session_state.change(self.conversation.run.main, self.conversation.peers, **field)
            return True

        await self.once(f"saved {name}", save)

    async def ask(self, text: str = "", *, tools: str = "auto", parallel: bool = False) -> str:
        """Ask the model, let it call tools, and return its final text, which is not part of the run's answer.

        `text` is first added to the conversation. `tools` is auto, none, required or a tool's name; with `parallel` the
        calls of one answer run concurrently.

        Raises:
            NoAnswer: The model returned no text.
            BudgetExceeded: The run's model calls are used up.
        """
        async with self._taking_step("a model's answer"):
            return await answering.ask(self.conversation, text, tools, parallel=parallel)

    async def answer(self, text: str = "") -> str:
        """Have the model write the run's answer, streamed to readers, without tools; return it."""
        async with self._taking_step("the run's answer"):
            self.finish_reason = await answering.give_answer(self.conversation, text)
            return self.conversation.scope.notes.last_text

    async def publish(self, text: str) -> None:
        """Send readers a text of the mode's own, which is not part of the run's answer."""
        async with self._taking_step("a text of the mode"):
            await say_text(self.conversation.scope, text)

    async def finish(self, text: str) -> None:
        """Use `text` as the run's answer; the return value of the mode's function is used in this way."""
        async with self._taking_step("a text of the mode"):
            self.finish_reason = await answering.give_text(self.conversation, text)

    async def call_tool(self, name: str, **arguments: Any) -> CallResult:
        """Call a tool that the agent lists; a person must approve it first if a rule says so."""
        return (await self.call_tools([(name, arguments)]))[0]

    async def call_tools(self, calls: Sequence[tuple[str, dict[str, Any]]]) -> list[CallResult]:
        """Call tools concurrently; results are in the order of the calls, and the model sees them too.

        A tool's failure is a result. Raises BudgetExceeded if the run's tool calls are used up.
        """
        dumped = dump_calls(calls)
        async with self._taking_step(f"a call of {', '.join(name for name, _ in calls)}") as step:
            return await run_calls(self.conversation, dumped, step)

    async def call_agent(self, key: str, task: str) -> CallResult:
        """Have an agent in `subagents` do a task; it sees only the text."""
        result = await self.call_tool(subagent.NAME, agentKey=key, task=task)
        return read_agent_result(result)

    async def ask_person(self, question: str, **details: Any) -> CallResult:
        """Ask the user and wait for the answer; the agent must list `ask_human`, and `details` are its further
        arguments."""
        return await self.call_tool(ASK_HUMAN, question=question, **details)

    async def plan(self, descriptions: Sequence[str]) -> list[Task]:
        """Add tasks to the plan that readers see; `task` begins one of them."""
        scope = self.conversation.scope
        if scope.ids.task_id is not None:
            raise RuntimeError("a task has no plan: add tasks with the mode that started it")
        async with self._taking_step("tasks of the plan") as step:
            planned = scope.planned or self.begin_plan()
            tasks = [Task(description=description) for description in descriptions]
            return await planned.add(tasks, f"mode/{step}")

    @asynccontextmanager
    async def task(self, task: Task, stage: str = "") -> AsyncGenerator[Mode]:
        """Work on a task inside the block, in a separate conversation that begins as a copy of this one.

        `stage` names one of the agent's `custom.stages`, with its own prompt, model and tools. An error that leaves the
        block ends the task as failed.
        """
        planned = self.conversation.scope.planned
        assert planned is not None, "a task is one that `plan` has returned"
        settings = self._find_stage(stage)
        opened = self.open_task(planned, task, settings)
        await opened.begin()
        tools = answering.select_tools(self._offered, settings) if stage else self.conversation.tools
        conversation = Conversation(opened.scope, self.conversation.peers, [*tools])
        mode = Mode(conversation, task.description, self._count, self._offered)
        try:
            try:
                yield mode
            finally:
                await mode.close()
            mode.check_end()
        except (ModeChanged, StaleLease, Stopped):
            raise
        except HeadraceError as error:
            await opened.end("", to_failure(error))
            raise
        except Exception:
            # The code's own error, which it may catch outside the block; its message may contain anything, so it is not
            # published.
            await opened.end("", CODE_FAILED)
            raise
        await opened.mark("completed")
        await opened.end(mode.last_text)

    @property
    def last_text(self) -> str:
        """The last text in this scope, from the model or the mode."""
        return self.conversation.scope.notes.last_said

    async def run_together(self, works: Sequence[Coroutine[Any, Any, T]], *, at_once: int = TOGETHER_MAX) -> list[T]:
        self._begin_use()
        try:
            return await super().run_together(works, at_once=at_once)
        finally:
            self._user = None

    async def close(self) -> None:
        """Stop a step that the code left running in another task, and refuse later ones."""
        self._is_closed = True
        if (left := self._user) is not None:
            left.cancel()
            await asyncio.wait([left])

    def check_end(self) -> None:
        """Check that the record of this scope has no further steps. Raises ModeChanged."""
        self._fit.check_end()

    def _find_stage(self, name: str) -> StageSettings:
        if not name:
            return self.agent.stage_settings(answering.WORK)
        settings = self.agent.named_stages.get(name)
        if settings is None:
            known = ", ".join(self.agent.named_stages) or "none"
            raise ValueError(f"the agent's file has no custom.stages.{name}; stages: {known}")
        return settings

    def _begin_use(self) -> None:
        if self._is_closed:
            raise RuntimeError("the mode's code has returned: it takes no more steps")
        if self._user is not None:
            raise RuntimeError("one step at a time: steps that run at the same time need separate tasks of the plan")
        self._user = asyncio.current_task()

    @asynccontextmanager
    async def _taking_step(self, wish: str) -> AsyncGenerator[int]:
        self._begin_use()
        try:
            self._count.take()
            self.conversation.run.control.check()
            self._fit.begin_step(wish)
            yield self._fit.step
        except (ModeChanged, StaleLease):
            raise
        except HeadraceError as error:
            await self._keep_failure(error)
            raise
        finally:
            self._user = None

    async def _keep_failure(self, error: HeadraceError) -> None:
        """Record the step's failure: code that continues after an error must see it again in a replay."""
        if self._fit.has_failure:
            return
        scope = self.conversation.scope
        await scope.retract_answer(error.reason)
        failure = to_failure(error)
        kept = Kept(failure=(failure.code, failure.message, failure.details), said=self._fit.said)
        await keep(scope, self._fit.step, "", kept)
