"""headrace gates: list, show, claim and answer gates."""

from __future__ import annotations

import getpass
import json
import os
import platform
import sys
from typing import Any

import click

from headrace.cli.commands.gates.audit import export, verify
from headrace.cli.commands.gates.grants import grants, revoke
from headrace.cli.commands.gates.watch import name_answerers, watch
from headrace.cli.facade.client import send_request
from headrace.cli.facade.command import CommandGroup
from headrace.cli.rpc_commands import add_command, make_flag
from headrace.cli.run_view.answers import SHOW_JSON, Show, list_rows
from headrace.cli.run_view.printing import format_time, print_shown
from headrace.v1 import gates_pb2


def name_holder() -> str:
    """Return the id by which this machine's terminals claim gates."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a container's user may have a number alone; OSError from Python 3.13 on
        user = str(os.getuid())
    return f"cli {user}@{platform.node()}"[:64]


HOLDER = "Name of the client that claims. Default: one for each user and machine."

_holder_option = click.option("--holder", default=name_holder, help=HOLDER)


@click.group(cls=CommandGroup)
def gates() -> None:
    """List and answer approvals, forms and questions."""


gates.add_command(watch)
gates.add_command(grants)
gates.add_command(revoke)
gates.add_command(export)
gates.add_command(verify)


add_command(
    gates,
    "list",
    "GateService/ListGates",
    list_rows(
        *("run_id", "gate_id", "opened_at", "kind", "tool_name:tool", "agent_key", "requester", "risk"),
        *(("answerers", name_answerers), "claimed_by", "reason"),
    ),
    make_flag("--own", "scope", "own", "List the gates of your own runs instead of those that you may answer."),
    make_flag("--tenant", "scope", "tenant", "List all gates of the tenant; needs the scope operate."),
    hidden="older_than_ms",
)


add_command(
    gates,
    "show",
    "GateService/GetGate",
    SHOW_JSON,
    about="Show a gate as JSON.\n\nIncludes the arguments of its call, and who has answered.",
)


@gates.command()
@_holder_option
@click.option("--note", help="With approve or reject: a note to the model.")
@click.option(
    "--sha256",
    "arguments_sha256",
    metavar="HASH",
    help="With approve: the argumentsSha256 that headrace gates show prints.",
)
@click.option(
    "--grant",
    type=click.Choice(["run", "chat"]),
    help="With approve: also approve later calls of the tool in this run or chat.",
)
@click.option(
    "--lasts",
    "lasts_s",
    type=click.IntRange(60, 2_592_000),
    help="How long --grant chat lasts, in seconds. Default: 28,800.",
)
@click.option(
    "--credential",
    metavar="-",
    help="Supply a missing credential; - reads it from standard input, or asks for it at a terminal.",
)
@click.argument("run_id")
@click.argument("gate_id")
@click.argument("answer", required=False)
def answer(
    holder: str,
    note: str | None,
    arguments_sha256: str | None,
    grant: str | None,
    lasts_s: int | None,
    credential: str | None,
    run_id: str,
    gate_id: str,
    answer: str | None,
) -> None:
    """Answer a gate, or supply a credential.

    ANSWER is approve, reject, or JSON: the whole decision of an approval, such as {"decision": "edit", "arguments":
    {…}}, or the result of a form or question. Arguments of more than 32,768 characters are approved with --sha256,
    after headrace gates show has printed them.
    """
    beside = {"note": note, "argumentsSha256": arguments_sha256, "grant": grant, "grantMs": lasts_s and lasts_s * 1000}
    if (credential is None) == (answer is None):
        raise click.UsageError("either ANSWER or --credential is needed")
    payload: Any
    if answer is None:
        payload = _read_credential(credential or "")
    else:
        payload = _read_payload(answer, {name: value for name, value in beside.items() if value})
    request = gates_pb2.AnswerGateRequest(run_id=run_id, gate_id=gate_id, payload=json.dumps(payload), holder=holder)
    answered: gates_pb2.AnswerGateResponse = send_request(request)
    missing = f" ({answered.votes_missing} more)" if answered.votes_missing else ""
    print_shown(f"{answered.status}: {answered.detail}{missing}")
    if answered.grant_id:
        click.echo(f"granted for later calls: {answered.grant_id}")
    if not answered.accepted:
        raise SystemExit(1)


def _read_credential(given: str) -> dict[str, str]:
    # In an argument it would stand in the history of the shell, and in the list of processes.
    if given != "-":
        raise click.UsageError("--credential takes - alone: the credential comes by standard input")
    text = getpass.getpass("Credential: ") if sys.stdin.isatty() else sys.stdin.readline()
    return {"decision": "supply", "secret": text.strip()}


def _read_payload(answer: str, beside: dict[str, Any]) -> Any:
    if answer in ("approve", "reject"):
        return {"decision": answer} | beside
    if beside:
        raise click.UsageError(
            "--note, --sha256, --grant and --lasts are for approve and reject; put them into the JSON"
        )
    try:
        return json.loads(answer)
    except ValueError as error:
        raise click.UsageError(f"ANSWER is approve, reject or JSON: {error}") from error


@gates.command()
@_holder_option
@click.option(
    "--lease",
    "lease_s",
    default=60,
    show_default=True,
    type=click.IntRange(1, 600),
    help="Duration of the claim in seconds.",
)
@click.argument("run_id")
@click.argument("gate_id")
def claim(holder: str, lease_s: int, run_id: str, gate_id: str) -> None:
    """Claim a gate, or renew the claim.

    No other client can answer a claimed gate.
    """
    request = gates_pb2.ClaimGateRequest(run_id=run_id, gate_id=gate_id, holder=holder, lease_ms=lease_s * 1000)
    claim: gates_pb2.ClaimGateResponse = send_request(request)
    if claim.status != "claimed":
        click.echo("the gate is closed", err=True)
        raise SystemExit(1)
    print_shown(f"claimed by {claim.claimed_by} until {format_time(claim.claimed_until)}")


def _show_status(response: gates_pb2.DelegateGateResponse | gates_pb2.AskBackResponse) -> None:
    click.echo(response.status)
    if response.status == "closed":
        raise SystemExit(1)


add_command(
    gates,
    "release",
    "GateService/ReleaseGate",
    Show(lambda response: click.echo("released" if response.released else "there was nothing to release")),
    click.Option(["--holder"], default=name_holder, help=HOLDER),
)
add_command(
    gates,
    "delegate",
    "GateService/DelegateGate",
    Show(_show_status),
    about="Let others answer a gate too.\n\nTO is user:NAME or role:NAME, and may be repeated.",
    arguments="run_id gate_id to",
)
add_command(
    gates,
    "ask-back",
    "GateService/AskBack",
    Show(_show_status),
    about="Ask the requester about a gate, or reply as the requester.\n\nThe gate stays open.",
)
