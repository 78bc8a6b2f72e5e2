"""An interactive conversation at the terminal.

During a run, /cancel and /steer take effect immediately, and a line answers a pending request of the run; any
other line is queued until the run has ended.
"""

from __future__ import annotations

import asyncio
import signal
from collections import deque
from typing import Any

import click
from google.protobuf.message import Message

from headrace.cli.conversation.input_lines import InputLines
from headrace.cli.conversation.run_follower import RunFollower, follow_run
from headrace.cli.facade.client import FacadeClient
from headrace.cli.facade.exit_codes import RequestRefused, ServerUnreachable
from headrace.cli.run_view.answers import Show, show_answer
from headrace.cli.run_view.context_view import CONTEXT
from headrace.cli.run_view.lists import AGENTS, CHECKPOINTS, KINDS, PINS, pin_message, revert_chat
from headrace.cli.run_view.printing import print_shown
from headrace.cli.run_view.view import choose_view
from headrace.v1 import agent_pb2, memory_pb2

HELP = """\
/agents        list agents
/agent KEY     use this agent from now on; `auto` chooses one for each question
/compact HINT  summarise the older part of the chat; HINT says what to keep
/context       show the contents of the context window, and what was left out
/pin WHICH     pin a message, so that summaries keep it: `question`, `answer` (the last), or its line
/unpin WHICH   unpin a message
/pins          list pinned messages
/checkpoints   list the points to which the chat can return
/revert ID     return to the state before the question of a checkpoint; nothing is deleted
/cancel        stop the running answer; Ctrl-C does too, twice leaves
/steer TEXT    send a message to the running agent
/help          show this list
/exit          leave; Ctrl-D does too
Anything else is sent as a question."""

PROMPT = "> "


class Conversation:
    def __init__(self, lines: InputLines, agent_key: str | None, chat_id: str | None, *, is_terminal: bool) -> None:
        """At a terminal, a line typed before the run asks for input is not used as the answer."""
        self.chat_id = chat_id
        self._lines = lines
        self._agent_key = agent_key
        self._is_terminal = is_terminal
        self._kept_lines: deque[str] = deque()

    async def run_to_end(self) -> None:
        click.echo("Type a question, or /help for the list of commands; Ctrl-D leaves.")
        while (line := await self._read_line()) is not None:
            if line == "/exit":
                return
            try:
                await self._execute_line(line)
            except (RequestRefused, ServerUnreachable) as error:
                # A failed question does not end the conversation.
                error.show()

    async def ask(self, message: str, **options: Any) -> int:
        """Ask a question, with options of `follow_run`, and return the exit code of its run."""
        code, self.chat_id = await follow_run(
            choose_view(), message, self._agent_key, self.chat_id, self._interact, **options
        )
        return code

    async def _show(self, request: Message, show: Show) -> None:
        async with FacadeClient() as facade:
            await show_answer(facade, request, show)

    async def _read_line(self) -> str | None:
        if self._kept_lines:
            return self._kept_lines.popleft()
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGINT, lambda: click.echo(f"\n{PROMPT}", nl=False))
        click.echo(PROMPT, nl=False)
        try:
            line = await self._lines.read_line()
        finally:
            loop.remove_signal_handler(signal.SIGINT)
        return None if line is None else line.strip()

    async def _execute_line(self, line: str) -> None:
        """Execute a line while no run is active."""
        command, _, rest = line.partition(" ")
        match command:
            case "":
                pass
            case "/help":
                click.echo(HELP)
            case "/agents":
                await self._show(agent_pb2.ListAgentsRequest(), AGENTS)
            case "/agent":
                self._agent_key = rest.strip() or None
            case "/cancel" | "/steer":
                click.echo("no run is going on")
            case "/compact" if not self.chat_id:
                click.echo("there is nothing to compact yet")
            case "/context" | "/pin" | "/unpin" | "/pins" | "/checkpoints" | "/revert" if not self.chat_id:
                click.echo("nothing has been asked in this chat yet")
            case "/context" if self.chat_id:
                await self._show(agent_pb2.GetContextRequest(chat_id=self.chat_id, agent_key=self._agent_key), CONTEXT)
            case "/pins" if self.chat_id:
                await self._show(memory_pb2.ListPinsRequest(chat_id=self.chat_id), PINS)
            case "/pin" | "/unpin" if self.chat_id and (rest.strip() in KINDS or rest.strip().isdecimal()):
                await pin_message(self.chat_id, rest.strip(), remove=command == "/unpin")
            case "/pin" | "/unpin":
                click.echo(f"{command} needs `question`, `answer`, or the number of a line; /checkpoints lists lines")
            case "/checkpoints" if self.chat_id:
                await self._show(memory_pb2.ListCheckpointsRequest(chat_id=self.chat_id, kind="query"), CHECKPOINTS)
            case "/revert" if self.chat_id and rest.strip().isdecimal():
                await revert_chat(self.chat_id, int(rest))
            case "/revert":
                click.echo("/revert needs the id of a checkpoint; /checkpoints lists them")
            case _ if command.startswith("/") and command != "/compact" and not rest:
                click.echo(HELP)
            case _:
                await self.ask(line)

    async def _interact(self, run: RunFollower) -> None:
        async with asyncio.TaskGroup() as group:
            if not self._is_terminal:
                group.create_task(self._answer_with_kept_lines(run))
            while (line := await self._lines.read_line()) is not None:
                await self._execute_during(run, line.strip())

    async def _answer_with_kept_lines(self, run: RunFollower) -> None:
        while True:
            await run.pending_inputs.added.wait()
            run.pending_inputs.added.clear()
            while self._kept_lines and run.pending_inputs.first is not None:
                await self._execute_during(run, self._kept_lines.popleft())

    async def _execute_during(self, run: RunFollower, line: str) -> None:
        command, _, rest = line.partition(" ")
        try:
            if command == "/cancel":
                await run.cancel()
            elif command == "/steer" and rest.strip():
                await run.steer(rest.strip())
            elif not await self._submit_line(run, line):
                self._kept_lines.append(line)
        except (RequestRefused, ServerUnreachable) as error:
            error.show()

    async def _submit_line(self, run: RunFollower, line: str) -> bool:
        """Submit the line to the run's first pending request; return whether there was one."""
        pending = run.pending_inputs.first
        if pending is None:
            return False
        body = pending.build_submission(line)
        if body is None:
            print_shown(pending.prompt)
            return True
        run.pending_inputs.remove(pending.id)
        if pending.needs_hash and body["payload"]["decision"] == "approve":
            body["payload"]["argumentsSha256"] = await run.fetch_arguments_hash(pending.id)
        await run.submit(body)
        return True
