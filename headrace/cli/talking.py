"""A conversation at the console: questions, and what a person may do while one is answered.

Lines are taken as they come. While a run goes on, /cancel and /steer act at once, and a line answers what the run waits
for; every other line is kept and is next when the run has ended.
"""

from __future__ import annotations

import asyncio
import signal
from collections import deque

import click

from headrace.cli.agents import show_agents
from headrace.cli.exits import Refused, Unreachable
from headrace.cli.following import Following, follow
from headrace.cli.lines import Lines
from headrace.cli.views import view

HELP = """\
/agents        list the agents
/agent KEY     ask this agent from now on; `auto` has one picked for each question
/compact HINT  shorten what the model is told of this chat; the hint is for the summary
/cancel        stop the running answer; Ctrl-C does too, twice leaves
/steer TEXT    tell the running agent something
/help          this
/exit          leave; Ctrl-D does too
Anything else is asked."""

PROMPT = "> "


class Talk:
    """One console, one chat."""

    def __init__(
        self, url: str, lines: Lines, agent_key: str | None, chat_id: str | None, *, is_terminal: bool
    ) -> None:
        """At a terminal, a line typed before a question came up is not taken for its answer."""
        self.chat_id = chat_id
        self._url = url
        self._lines = lines
        self._agent_key = agent_key
        self._is_terminal = is_terminal
        self._kept: deque[str] = deque()
        """Lines that came while a run went on."""

    async def to_the_end(self) -> None:
        """Take line after line."""
        click.echo("/help lists what else can be typed than questions; Ctrl-D leaves.")
        while (line := await self._next()) is not None:
            if line == "/exit":
                return
            try:
                await self._take(line)
            except (Refused, Unreachable) as error:
                # One question that fails does not end the conversation.
                error.show()

    async def ask(self, message: str) -> int:
        """Ask, and show the run to its end: its exit code."""
        code, self.chat_id = await follow(self._url, view(), message, self._agent_key, self.chat_id, self._beside)
        return code

    async def _next(self) -> str | None:
        if self._kept:
            return self._kept.popleft()
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGINT, lambda: click.echo(f"\n{PROMPT}", nl=False))
        click.echo(PROMPT, nl=False)
        try:
            line = await self._lines.next()
        finally:
            loop.remove_signal_handler(signal.SIGINT)
        return None if line is None else line.strip()

    async def _take(self, line: str) -> None:
        """Do what a line says while no run goes on."""
        command, _, rest = line.partition(" ")
        match command:
            case "":
                pass
            case "/help":
                click.echo(HELP)
            case "/agents":
                await show_agents(self._url, None)
            case "/agent":
                self._agent_key = rest.strip() or None
            case "/cancel" | "/steer":
                click.echo("no run is going on")
            case "/compact" if not self.chat_id:
                click.echo("there is nothing to compact yet")
            case _ if command.startswith("/") and command != "/compact" and not rest:
                click.echo(HELP)
            case _:
                await self.ask(line)

    async def _beside(self, run: Following) -> None:
        """Do what lines say while a run goes on."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._listen(run))
            if not self._is_terminal:
                group.create_task(self._answer_with_kept(run))

    async def _answer_with_kept(self, run: Following) -> None:
        """Answer what comes up with lines that were given before."""
        while True:
            await run.waits.began.wait()
            run.waits.began.clear()
            while self._kept and run.waits.first is not None:
                await self._act(run, self._kept.popleft())

    async def _listen(self, run: Following) -> None:
        while (line := await self._lines.next()) is not None:
            await self._act(run, line.strip())

    async def _act(self, run: Following, line: str) -> None:
        command, _, rest = line.partition(" ")
        try:
            if command == "/cancel":
                await run.cancel()
            elif command == "/steer" and rest.strip():
                await run.steer(rest.strip())
            elif not await self._answers(run, line):
                self._kept.append(line)
        except (Refused, Unreachable) as error:
            error.show()

    async def _answers(self, run: Following, line: str) -> bool:
        """Whether the line was for what the run waits for."""
        wait = run.waits.first
        if wait is None:
            return False
        body = wait.body(line)
        if body is None:
            click.echo(wait.prompt)
            return True
        run.waits.answered(wait)
        await run.submit(body)
        return True
