"""What fills the window of a chat's next request, for `headrace context` and `/context`."""

from __future__ import annotations

import click
import msgspec

from headrace.cli.facade.client import FacadeClient

BAR_CHARS = 30
"""Width of a bar that fills the whole window."""

GONE = ("summarised", "left_out")


class Part(msgspec.Struct, frozen=True, rename="camel"):
    """A part as GET /api/context has it."""

    kind: str
    state: str
    why: str = ""
    count: int = 0
    tokens: int = 0
    first_n: int = 0
    last_n: int = 0

    @property
    def lines(self) -> str:
        return f"lines {self.first_n}-{self.last_n}" if self.first_n else ""


class Window(msgspec.Struct, frozen=True, rename="camel"):
    """The answer of GET /api/context."""

    agent_key: str
    model: str = ""
    tokens: int = 0
    context_window_tokens: int = 0
    parts: tuple[Part, ...] = ()
    compaction_due: bool = False
    last_cached_ratio: float | None = None


async def print_context(url: str, chat_id: str, agent_key: str | None = None, run_id: str | None = None) -> None:
    wanted = {"chatId": chat_id, "agentKey": agent_key, "runId": run_id}
    async with FacadeClient(url) as facade:
        data = await facade.get("/api/context", **{name: value for name, value in wanted.items() if value})
    window = msgspec.json.decode(data, type=Window)
    room = window.context_window_tokens
    share = f" of {room:,} ({window.tokens / room:.0%})" if room else ""
    click.echo(f"{window.agent_key}, {window.model}: {window.tokens:,} tokens{share}")
    for part in window.parts:
        if part.state not in GONE:
            bar = "█" * max(1, round(BAR_CHARS * part.tokens / (room or window.tokens or 1)))
            why = f"  {part.why}" if part.why else ""
            click.echo(f"  {part.kind:9} {part.tokens:>9,}  {bar} {part.count or ''}{why}")
    for part in window.parts:
        if part.state in GONE:
            state = part.state.replace("_", " ")
            click.echo(f"  {state}: {part.count} {part.kind}, {part.tokens:,} tokens, {part.lines}: {part.why}")
    if window.last_cached_ratio is not None:
        click.echo(f"  {window.last_cached_ratio:.0%} of the last call came from the provider's cache")
    if window.compaction_due:
        click.echo("  a compaction comes before the next turn")
