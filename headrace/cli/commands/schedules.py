"""headrace schedules: runs at set times."""

from __future__ import annotations

from typing import Any

import click

from headrace.cli.facade.client import send_request
from headrace.cli.facade.command import CommandGroup
from headrace.cli.facade.options import get_url
from headrace.cli.rpc_commands import add_command, make_flag
from headrace.cli.run_view.answers import Show, list_rows, show_fields
from headrace.cli.run_view.printing import Instant, format_time, print_shown
from headrace.cli.run_view.tables import NONE, Column, print_rows
from headrace.v1 import schedule_pb2


def _describe_times(schedule: schedule_pb2.Schedule) -> str:
    when = f"{schedule.cron} ({schedule.time_zone})" if schedule.cron else "once" if schedule.once_at else ""
    return " and ".join(filter(None, [when, "on webhook" if schedule.on_webhook else ""]))


def _describe_next(schedule: schedule_pb2.Schedule) -> str:
    if schedule.held or schedule.paused:
        return f"held: {schedule.held}" if schedule.held else "paused"
    has_times = schedule.cron or schedule.once_at
    return format_time(schedule.next_at, schedule.time_zone) if schedule.next_at else "over" if has_times else NONE


_COLUMNS: tuple[Column, ...] = (
    "schedule_id:id",
    *(("times", _describe_times), ("next", _describe_next)),
    ("last", lambda schedule: schedule.firings[0].outcome if schedule.firings else NONE),
    *("agent_key", "user", "name"),
)


def _show_schedule(response: schedule_pb2.GetScheduleResponse) -> None:
    print_rows([response.schedule], _COLUMNS)
    if response.schedule.message:  # an operator does not see those of others
        print_shown(f"message: {response.schedule.message}")
    print_rows(
        response.schedule.firings, ("due_at", "outcome", "run_id", "chat_id", "webhook_id:post", "passed", "failure")
    )


schedules = CommandGroup("schedules", help="Run agents on a schedule.")

add_command(
    schedules,
    "list",
    "ScheduleService/ListSchedules",
    list_rows(*_COLUMNS),
    make_flag(
        "--tenant",
        "scope",
        "tenant",
        "List the schedules of all users of the tenant, up to 200; needs the scope operate.",
    ),
    hidden="page_size",
)
add_command(
    schedules, "show", "ScheduleService/GetSchedule", Show(_show_schedule), about="Show a schedule and its latest runs."
)


@schedules.command()
@click.option("--cron", default="", help='Times, as the five fields of cron, such as "30 9 * * 1-5".')
@click.option("--at", "once_at", type=Instant(), help="A single time: 2030-01-31T09:30, or 15m from now.")
@click.option(
    "--zone",
    "time_zone",
    default="",
    is_eager=True,
    help="Time zone, such as Europe/Berlin. Default: UTC for --cron, the local zone for --at.",
)
@click.option("--name", default="", help="Display name.")
@click.option("--chat", "chat_id", default="", help="Chat of all its runs. Default: a new chat for each run.")
@click.option(
    "--queue", is_flag=True, help="If the previous run is still going, start this one after it instead of skipping it."
)
@click.option("--catch-up", is_flag=True, help="After an outage, start a run for the last time that was missed.")
@click.option("--on-webhook", is_flag=True, help="Also start a run for each post of another system.")
@click.option(
    "--jitter",
    "jitter_s",
    default=0,
    type=click.IntRange(0, 3600),
    help="Maximum random delay of each time, in seconds.",
)
@click.argument("agent_key")
@click.argument("message")
def create(queue: bool, **fields: Any) -> None:
    """Create a schedule and print its id.

    The agent AGENT_KEY receives MESSAGE at the times of --cron, once at the time of --at, or for each post with
    --on-webhook. Then the second line is the address for posts, and the third their secret, which is shown only once.
    """
    request = schedule_pb2.CreateScheduleRequest(**fields, overlap="queue" if queue else "skip")
    has_time = fields["once_at"] is not None
    if (request.cron and has_time) or not (request.cron or has_time or request.on_webhook):
        raise click.UsageError("give --cron or --at, or --on-webhook")
    schedule_id = send_request(request).schedule.schedule_id
    click.echo(schedule_id)
    if request.on_webhook:
        click.echo(f"{get_url().rstrip('/')}/hooks/{schedule_id}")
        rotation = schedule_pb2.RotateScheduleSecretRequest(schedule_id=schedule_id, keep_s=0)
        click.echo(send_request(rotation).secret)


add_command(
    schedules,
    "secret",
    "ScheduleService/RotateScheduleSecret",
    show_fields("secret"),
    about="Replace the secret for posts, and print the new one.",
)

_CHANGES = (
    ("pause", {"paused": True}, "Pause a schedule."),
    ("resume", {"paused": False}, "Resume a paused schedule; missed times are not made up."),
    ("hold", {"held": True}, "Stop any user's schedule; only an operator can release it."),
    ("release", {"held": False}, "Release a schedule that an operator has stopped."),
)
for _name, _fields, _about in _CHANGES:
    add_command(schedules, _name, "ScheduleService/UpdateSchedule", about=_about, fixed=_fields)

add_command(schedules, "trigger", "ScheduleService/TriggerSchedule", about="Start a run of a schedule now.")
add_command(
    schedules,
    "delete",
    "ScheduleService/DeleteSchedule",
    about="Delete schedules; their chats are kept.",
    is_for_each=True,
)
