"""Checkpoints of a chat, for `headrace chats` and the conversation: their list, and going back to one."""

from __future__ import annotations

import click
import msgspec

from headrace.cli.facade.client import FacadeClient
from headrace.cli.run_view.printing import print_text
from headrace.cli.run_view.times import format_time

TEXT_CHARS_MAX = 70


class Checkpoint(msgspec.Struct, frozen=True, rename="camel"):
    """A checkpoint as GET /api/chat/checkpoints has it."""

    checkpoint_id: int
    n: int
    kind: str
    text: str = ""
    tools: tuple[str, ...] = ()
    created_at: int = 0
    context_id: str = ""

    @property
    def title(self) -> str:
        text = " ".join(self.text.split())[:TEXT_CHARS_MAX]
        return text if self.kind == "query" else f"  {', '.join(self.tools) or text}"


async def print_checkpoints(url: str, chat_id: str, *, count: int = 50, with_steps: bool = False) -> None:
    async with FacadeClient(url) as facade:
        kind = {} if with_steps else {"kind": "query"}
        data = await facade.get("/api/chat/checkpoints", chatId=chat_id, pageSize=str(count), **kind)
    page = msgspec.json.decode(data, type=list[Checkpoint])
    for checkpoint in reversed(page):
        when = format_time(checkpoint.created_at)
        print_text(f"{checkpoint.checkpoint_id:5}  {when}  line {checkpoint.n}, before {checkpoint.title}")


async def revert_chat(url: str, chat_id: str, checkpoint_id: int) -> None:
    async with FacadeClient(url) as facade:
        await facade.post("/api/chat/revert", {"chatId": chat_id, "checkpointId": checkpoint_id})
    click.echo(f"the chat is as it was at checkpoint {checkpoint_id}; its log keeps everything")
