"""headrace schedules: runs at set times."""

from __future__ import annotations

from typing import Any

import click
import msgspec

from headrace.cli.facade.client import FacadeClient, make_request
from headrace.cli.facade.options import url_option
from headrace.cli.run_view.printing import Instant, format_time, print_text


class _Failure(msgspec.Struct, frozen=True):
    code: str = ""
    message: str = ""


class _Firing(msgspec.Struct, frozen=True, rename="camel"):
    due_at: int = 0
    outcome: str = ""
    run_id: str = ""
    chat_id: str = ""
    failure: _Failure | None = None
    passed: int = 0
    webhook_id: str = ""

    @property
    def line(self) -> str:
        words = [format_time(self.due_at), self.outcome]
        if self.webhook_id:
            words.append(f"post {self.webhook_id}")
        if self.run_id:
            words.append(f"run {self.run_id}  chat {self.chat_id}")
        if self.failure is not None:
            words.append(f"{self.failure.code}: {self.failure.message}")
        if self.passed:
            words.append(f"({self.passed} later times passed)")
        return "  ".join(words)


class Schedule(msgspec.Struct, frozen=True, rename="camel"):
    """A schedule as GET /api/schedules has it."""

    schedule_id: str
    name: str = ""
    cron: str = ""
    time_zone: str = ""
    agent_key: str = ""
    paused: bool = False
    next_at: int = 0
    once_at: int = 0
    on_webhook: bool = False
    firings: tuple[_Firing, ...] = ()
    user: str = ""
    held: str = ""

    @property
    def line(self) -> str:
        when = f"{self.cron} ({self.time_zone})" if self.cron else "once" if self.once_at else ""
        when = " and ".join(filter(None, [when, "on webhook" if self.on_webhook else ""]))
        if not (self.cron or self.once_at):
            return self._join(when + "  paused" * self.paused)
        following = "paused" if self.paused else format_time(self.next_at) if self.next_at else "over"
        return self._join(f"{when}  next: {following}")

    def _join(self, times: str) -> str:
        last = f"  last: {self.firings[0].outcome}" if self.firings else ""
        times += f"  held: {self.held}" if self.held else ""
        return f"{self.schedule_id}  {times}{last}  {self.agent_key}  {self.name}"


class _Secret(msgspec.Struct, frozen=True):
    secret: str


@click.group()
def schedules() -> None:
    """Have agents asked at set times."""


@schedules.command("list")
@url_option
@click.option("--tenant", is_flag=True, help="Those of all users of the tenant, 200 at most (the scope operate).")
@click.option("--user", default="", help="Of --tenant only those of this user.")
def list_schedules(url: str, tenant: bool, user: str) -> None:
    """List your schedules, the oldest first: id, times, next time, last outcome, agent, name."""
    wanted = {"scope": "tenant"} | ({"user": user} if user else {}) if tenant else {}
    data = make_request(url, lambda facade: facade.get("/api/schedules", **wanted))
    for schedule in msgspec.json.decode(data, type=tuple[Schedule, ...]):
        print_text(f"{schedule.user}  {schedule.line}" if tenant else schedule.line)


@schedules.command()
@url_option
@click.argument("schedule_id")
def hold(url: str, schedule_id: str) -> None:
    """Have any user's schedule begin no runs, which its user cannot change (the scope operate)."""
    make_request(url, lambda facade: facade.post("/api/schedule", {"scheduleId": schedule_id, "held": True}))


@schedules.command()
@url_option
@click.argument("schedule_id")
def release(url: str, schedule_id: str) -> None:
    """End the hold of a schedule (the scope operate)."""
    make_request(url, lambda facade: facade.post("/api/schedule", {"scheduleId": schedule_id, "held": False}))


@schedules.command()
@url_option
@click.argument("schedule_id")
def show(url: str, schedule_id: str) -> None:
    """Show a schedule and what became of its last times, the newest first."""
    data = make_request(url, lambda facade: facade.get("/api/schedule", scheduleId=schedule_id))
    schedule = msgspec.json.decode(data, type=Schedule)
    print_text(schedule.line)
    for firing in schedule.firings:
        print_text(firing.line)


@schedules.command()
@url_option
@click.option("--cron", default="", help='Times in the five fields of cron, such as "30 9 * * 1-5".')
@click.option("--at", "once_at", type=Instant(), help="The only time: 2030-01-31T09:30, or 15m from now on.")
@click.option("--zone", "timeZone", default="", help="Time zone of --cron, such as Europe/Berlin; UTC if left out.")
@click.option("--name", default="", help="What you call it.")
@click.option("--chat", "chatId", default="", help="Chat of all its runs; left out, each has one of its own.")
@click.option("--queue", is_flag=True, help="Wait for the run of the last time (left out, such a time is skipped).")
@click.option("--catch-up", "catchUp", is_flag=True, help="Begin the last of missed times when the service is back.")
@click.option("--on-webhook", "on_webhook", is_flag=True, help="Begin a run for what another system posts, too.")
@click.option("--jitter", "jitterS", default=0, type=click.IntRange(0, 3600), help="Seconds of delay, by chance.")
@click.argument("agent_key")
@click.argument("message")
def create(
    url: str,
    agent_key: str,
    message: str,
    cron: str,
    once_at: int | None,
    queue: bool,
    on_webhook: bool,
    **fields: Any,
) -> None:
    """Have AGENT_KEY asked MESSAGE at the times of --cron, once --at a time, or --on-webhook; print the schedule's id.

    With --on-webhook the second line is the address for posts, and the third their secret, which is shown this once.
    """
    if (cron and once_at is not None) or not (cron or once_at is not None or on_webhook):
        raise click.UsageError("give --cron or --at, or --on-webhook")
    body: dict[str, Any] = {"cron": cron} if cron else {"onceAt": once_at} if once_at is not None else {}
    body |= {"onWebhook": True} if on_webhook else {}
    body |= {name: value for name, value in fields.items() if value}
    body |= {"agentKey": agent_key, "message": message, "overlap": "queue" if queue else "skip"}
    data = make_request(url, lambda facade: facade.post("/api/schedules", body))
    schedule_id = msgspec.json.decode(data, type=Schedule).schedule_id
    click.echo(schedule_id)
    if on_webhook:
        click.echo(f"{url.rstrip('/')}/hooks/{schedule_id}")
        click.echo(_make_secret(url, schedule_id, 0))


@schedules.command()
@url_option
@click.option(
    "--keep", "keep_s", default=86_400, type=click.IntRange(0, 604_800), help="Seconds the old one counts on."
)
@click.argument("schedule_id")
def secret(url: str, schedule_id: str, keep_s: int) -> None:
    """Print a new secret for posts; the old one counts beside it for --keep seconds, a day if left out."""
    click.echo(_make_secret(url, schedule_id, keep_s))


def _make_secret(url: str, schedule_id: str, keep_s: int) -> str:
    body = {"scheduleId": schedule_id, "keepS": keep_s}
    data = make_request(url, lambda facade: facade.post("/api/schedule/secret", body))
    return msgspec.json.decode(data, type=_Secret).secret


@schedules.command()
@url_option
@click.argument("schedule_id")
def pause(url: str, schedule_id: str) -> None:
    """Let its times pass without runs."""
    make_request(url, lambda facade: facade.post("/api/schedule", {"scheduleId": schedule_id, "paused": True}))


@schedules.command()
@url_option
@click.argument("schedule_id")
def resume(url: str, schedule_id: str) -> None:
    """End a pause; what passed in it is not made up for."""
    make_request(url, lambda facade: facade.post("/api/schedule", {"scheduleId": schedule_id, "paused": False}))


@schedules.command()
@url_option
@click.argument("schedule_id")
def trigger(url: str, schedule_id: str) -> None:
    """Begin a run now, beside its times."""
    make_request(url, lambda facade: facade.post("/api/schedule/trigger", {"scheduleId": schedule_id}))


@schedules.command()
@url_option
@click.argument("schedule_ids", nargs=-1, required=True)
def delete(url: str, schedule_ids: tuple[str, ...]) -> None:
    """Delete schedules; their chats stay."""

    async def delete_all(facade: FacadeClient) -> None:
        for schedule_id in schedule_ids:
            await facade.delete("/api/schedule", scheduleId=schedule_id)

    make_request(url, delete_all)
