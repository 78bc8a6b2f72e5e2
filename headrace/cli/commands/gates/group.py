"""headrace gates: what waits for a person, and answers to it."""

from __future__ import annotations

import getpass
import json
import os
import platform
import sys
from typing import Any

import click
import msgspec

from headrace.cli.commands.gates.audit import export, verify
from headrace.cli.commands.gates.grants import grants, revoke
from headrace.cli.commands.gates.watch import Gate, watch
from headrace.cli.facade.client import make_request
from headrace.cli.facade.options import url_option
from headrace.cli.run_view.printing import format_time, print_shown


class _Answered(msgspec.Struct, frozen=True, rename="camel"):
    accepted: bool
    status: str
    detail: str
    votes_missing: int = 0
    grant_id: str = ""


class _Claim(msgspec.Struct, frozen=True, rename="camel"):
    status: str
    claimed_by: str = ""
    claimed_until: int = 0


class _Released(msgspec.Struct, frozen=True):
    released: bool


def name_holder() -> str:
    """Return the id by which this machine's terminals claim gates."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a container's user may have a number alone; OSError from Python 3.13 on
        user = str(os.getuid())
    return f"cli {user}@{platform.node()}"[:64]


_holder_option = click.option("--holder", default=name_holder, help="The client that claims; one for each machine.")


@click.group()
def gates() -> None:
    """List what waits for a person, and answer it."""


gates.add_command(watch)
gates.add_command(grants)
gates.add_command(revoke)
gates.add_command(export)
gates.add_command(verify)


@gates.command("list")
@url_option
@click.option("--own", "scope", flag_value="own", help="Those of your runs, instead of those that you may answer.")
@click.option("--tenant", "scope", flag_value="tenant", help="All of the tenant (a credential with the scope operate).")
@click.option(
    "--kind", type=click.Choice(["approval", "form", "question", "credential"]), help="Only gates of this kind."
)
@click.option("--risk", type=click.Choice(["critical", "high", "medium", "low"]), help="Only approvals of this risk.")
@click.option("--agent", "agent_key", help="Only gates of this agent.")
@click.option("--count", default=50, show_default=True, type=click.IntRange(1, 200), help="How many, the oldest first.")
def list_gates(
    url: str, scope: str | None, kind: str | None, risk: str | None, agent_key: str | None, count: int
) -> None:
    """List gates, the one that waits longest first: run, gate, since when, kind, tool, why."""
    given = {"kind": kind, "risk": risk, "agentKey": agent_key, "scope": scope}
    wanted = {"pageSize": str(count)} | {name: value for name, value in given.items() if value}
    data = make_request(url, lambda facade: facade.get("/api/gates", **wanted))
    gates = msgspec.json.decode(data, type=list[Gate])
    for gate in gates:
        print_shown(gate.line)
    if len(gates) == count:
        click.echo(f"{count} are shown; --count shows more", err=True)


@gates.command()
@url_option
@click.argument("run_id")
@click.argument("gate_id")
def show(url: str, run_id: str, gate_id: str) -> None:
    """Show the gate GATE_ID of the run RUN_ID as JSON, with its call's arguments and who has answered."""
    data = make_request(url, lambda facade: facade.get("/api/gate", runId=run_id, gateId=gate_id))
    print_shown(json.dumps(json.loads(bytes(data)), indent=2, ensure_ascii=False))


@gates.command()
@url_option
@_holder_option
@click.option("--note", help="A note to the model, with approve and reject.")
@click.option(
    "--sha256", "arguments_sha256", metavar="HASH", help="With approve: which arguments, as `show` has argumentsSha256."
)
@click.option("--grant", type=click.Choice(["run", "chat"]), help="With approve: hold for later calls of this, too.")
@click.option(
    "--lasts", "lasts_s", type=click.IntRange(60, 2_592_000), help="How long --grant chat lasts, in s (28800)."
)
@click.option(
    "--credential", metavar="-", help="-: read the missing credential from standard input, or ask for it at a terminal."
)
@click.argument("run_id")
@click.argument("gate_id")
@click.argument("answer", required=False)
def answer(
    url: str,
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
    """Answer the gate GATE_ID of the run RUN_ID: approve, reject, or JSON; or supply a --credential.

    Arguments of more than 32,768 characters are approved with --sha256, after `show` has shown them.
    JSON is an approval's whole decision ({"decision": "edit", "arguments": {…}}) or the result of a form or question.
    """
    beside = {"note": note, "argumentsSha256": arguments_sha256, "grant": grant, "grantMs": lasts_s and lasts_s * 1000}
    if (credential is None) == (answer is None):
        raise click.UsageError("either ANSWER or --credential is needed")
    payload: Any
    if answer is None:
        payload = _read_credential(credential or "")
    else:
        payload = _read_payload(answer, {name: value for name, value in beside.items() if value})
    body = {"runId": run_id, "gateId": gate_id, "payload": payload, "holder": holder}
    data = make_request(url, lambda facade: facade.post("/api/gate/answer", body))
    answered = msgspec.json.decode(data, type=_Answered)
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
@url_option
@_holder_option
@click.option(
    "--lease", "lease_s", default=60, show_default=True, type=click.IntRange(1, 600), help="For how long, in s."
)
@click.argument("run_id")
@click.argument("gate_id")
def claim(url: str, holder: str, lease_s: int, run_id: str, gate_id: str) -> None:
    """Claim the gate GATE_ID of the run RUN_ID, so that no other client answers it, or prolong the claim."""
    body = {"runId": run_id, "gateId": gate_id, "holder": holder, "leaseMs": lease_s * 1000}
    data = make_request(url, lambda facade: facade.post("/api/gate/claim", body))
    claim = msgspec.json.decode(data, type=_Claim)
    if claim.status != "claimed":
        click.echo("the gate is closed", err=True)
        raise SystemExit(1)
    print_shown(f"claimed by {claim.claimed_by} until {format_time(claim.claimed_until)}")


@gates.command()
@url_option
@_holder_option
@click.argument("run_id")
@click.argument("gate_id")
def release(url: str, holder: str, run_id: str, gate_id: str) -> None:
    """Give a claim of the gate GATE_ID of the run RUN_ID up."""
    body = {"runId": run_id, "gateId": gate_id, "holder": holder}
    data = make_request(url, lambda facade: facade.post("/api/gate/release", body))
    released = msgspec.json.decode(data, type=_Released).released
    click.echo("released" if released else "there was nothing to release")


@gates.command()
@url_option
@click.option("--note", help="What is said with it.")
@click.argument("run_id")
@click.argument("gate_id")
@click.argument("to", nargs=-1, required=True)
def delegate(url: str, note: str | None, run_id: str, gate_id: str, to: tuple[str, ...]) -> None:
    """Let others, TO (user:NAME or role:NAME), answer the gate GATE_ID of the run RUN_ID too."""
    body = {"runId": run_id, "gateId": gate_id, "to": list(to)} | ({"note": note} if note else {})
    _report_status(make_request(url, lambda facade: facade.post("/api/gate/delegate", body)))


@gates.command("ask-back")
@url_option
@click.argument("run_id")
@click.argument("gate_id")
@click.argument("note")
def ask_back(url: str, run_id: str, gate_id: str, note: str) -> None:
    """Ask the requester about the gate GATE_ID of the run RUN_ID, or reply as the requester; it stays open."""
    body = {"runId": run_id, "gateId": gate_id, "note": note}
    _report_status(make_request(url, lambda facade: facade.post("/api/gate/ask", body)))


def _report_status(data: msgspec.Raw) -> None:
    status = json.loads(bytes(data))["status"]
    click.echo(status)
    if status == "closed":
        raise SystemExit(1)
