"""headrace follow: shows all runs of a chat as they come."""

from __future__ import annotations

import asyncio

import click

from headrace.cli.commands.gates.watch import RETRIES_MAX, RETRY_S
from headrace.cli.facade.client import FacadeClient
from headrace.cli.facade.command import FacadeCommand
from headrace.cli.facade.exit_codes import PeerUnavailable, ServerUnreachable, StreamCut
from headrace.cli.run_view.run_display import RunDisplay
from headrace.cli.run_view.view import View, choose_view
from headrace.v1 import agent_pb2


@click.command(cls=FacadeCommand)
@click.option("--cursor", default="", help="Cursor that an earlier follow printed. Default: the start of the chat.")
@click.argument("chat_id")
def follow(cursor: str, chat_id: str) -> None:
    """Show a chat's runs, present and future, until Ctrl-C.

    Prints the cursor of the last event on standard error. The cursor stays valid as long as the chat exists; with it,
    the next follow continues after that event.
    """
    follower = _ChatFollower(choose_view(), chat_id, cursor)
    try:
        asyncio.run(follower.run())
    finally:
        if follower.cursor:
            click.echo(f"continue with: headrace follow {chat_id} --cursor {follower.cursor}", err=True)


class _ChatFollower:
    def __init__(self, view: View, chat_id: str, cursor: str) -> None:
        self.cursor = cursor
        self._view = view
        self._chat_id = chat_id
        self._run_id = ""
        self._display = RunDisplay(view)

    async def run(self) -> None:
        """Show events until the server refuses, or cannot be reached."""
        has_begun, failures = False, 0
        while True:
            request = agent_pb2.FollowRequest(chat_id=self._chat_id, cursor=self.cursor or None)
            try:
                async with FacadeClient() as facade, facade.watch(request) as frames:
                    has_begun = True
                    async for frame in frames:
                        self._show(frame)
                        failures = 0
            except (StreamCut, ServerUnreachable, PeerUnavailable) as error:
                failures += 1
                if not has_begun or failures > RETRIES_MAX:
                    raise
                if failures == 1:
                    self._view.show_notice(f"{error.message}; trying again")
            await asyncio.sleep(RETRY_S)

    def _show(self, frame: agent_pb2.FollowDelta) -> None:
        delta = frame.delta
        if frame.run_id != self._run_id:  # the state of a run is kept while it is shown
            self._run_id, self._display = frame.run_id, RunDisplay(self._view)
        if delta.HasField("request_query"):
            self._view.show_query(delta.request_query.message, delta.request_query.by)
        self._display.show_event(delta)
        self.cursor = frame.cursor
