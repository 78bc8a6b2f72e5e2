"""Finds what this machine lacks for Headrace, and what that costs."""

from __future__ import annotations

import shutil
import socket
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec

from services.tools.sandbox.tiers import Sandbox, find_sandbox

EXTRAS = {
    "data": ("pandas", "model-written Python has no pandas, matplotlib, scipy and openpyxl"),
    "documents": ("reportlab", "no reports as PDF or slides, and PDF files cannot be read"),
    "cloud": ("google.auth", "no Google credentials for Vertex AI"),
}
"""A module of each extra, and the cost of its absence."""

PORTS = {8080: "--port", 7001: "--grpc-port", 7003: "--memory-port"}
"""Default ports of `headrace up`, with the options that replace them."""

PROGRAMS = {
    "browser": (
        ("chromium", "chromium-browser", "google-chrome", "firefox", "microsoft-edge", "open", "wslview"),
        "no console on this machine; remedy: headrace chat in a terminal",
    ),
    "docker": (("docker", "podman"), "the compose.yaml of a project cannot be used"),
}
"""Programs of which one suffices, and the cost of having none."""

CONNECT_S = 5


@dataclass(frozen=True, slots=True)
class Finding:
    subject: str
    state: str

    cost: str = ""
    """Names what does not work, and the remedy; empty if everything works."""

    is_fatal: bool = False
    """Whether the suite, or a part that most agents use, cannot work."""


async def examine_machine(env: Mapping[str, str]) -> list[Finding]:
    has_tenants = env.get("HEADRACE_AUTH", "none") != "none"
    sandbox = await find_sandbox(
        env.get("HEADRACE_TOOLS_SANDBOX", "auto"),
        allow_unsandboxed=env.get("HEADRACE_ALLOW_UNSANDBOXED", "").lower() in ("1", "true"),
        has_tenants=has_tenants,
    )
    return [
        describe_sandbox(sandbox, has_tenants=has_tenants),
        await _examine_database(env.get("HEADRACE_DATABASE_URL", "")),
        *_examine_programs(),
        *_examine_ports(),
    ]


def describe_sandbox(sandbox: Sandbox, *, has_tenants: bool) -> Finding:
    match sandbox.tier:
        case "bubblewrap":
            return Finding("sandbox", "bubblewrap")
        case "process":
            users = "" if has_tenants else ", and with authentication they are refused"
            cost = f"commands cannot be given a network{users}; remedy: apt install bubblewrap"
            return Finding("sandbox", f"process ({sandbox.problem})" if sandbox.problem else "process", cost)
        case "external":
            return Finding("sandbox", "external", "commands cannot be given a network")
        case "none":
            return Finding("sandbox", "none", "commands run unconfined, as this service's user")
        case None:
            cost = "_bash_, python and tools with a `command` are refused; remedy: apt install bubblewrap"
            return Finding("sandbox", f"none works ({sandbox.problem})", cost, is_fatal=True)


async def _examine_database(url: str) -> Finding:
    if not url:
        cost = "one memory service and one machine; remedy: set HEADRACE_DATABASE_URL"
        return Finding("PostgreSQL", "not set: chats are files", cost)
    import asyncpg

    try:
        connection = await asyncpg.connect(url, timeout=CONNECT_S)
        await connection.close()
    except (OSError, ValueError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
        problem = f"cannot be reached ({type(error).__name__})"  # its text may show the password
        return Finding("PostgreSQL", problem, "headrace up does not start", is_fatal=True)
    return Finding("PostgreSQL", "connected")


def _examine_programs() -> Iterator[Finding]:
    for subject, (programs, cost) in PROGRAMS.items():
        found = next(filter(shutil.which, programs), None)
        yield Finding(subject, found or "none", "" if found else cost)
    for extra, (module, cost) in EXTRAS.items():
        try:
            is_installed = find_spec(module) is not None
        except ModuleNotFoundError:  # its parent is missing
            is_installed = False
        remedy = f"{cost}; remedy: pip install 'headrace[{extra}]'"
        yield Finding(
            f"extra {extra}", "installed" if is_installed else "not installed", "" if is_installed else remedy
        )


def _examine_ports() -> Iterator[Finding]:
    for port, option in PORTS.items():
        with socket.socket() as tried:
            tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                tried.bind(("127.0.0.1", port))
            except OSError as error:
                cost = f"headrace up needs {option} with another port"
                yield Finding(f"port {port}", error.strerror or str(error), cost)
            else:
                yield Finding(f"port {port}", "free")


def print_findings(findings: Sequence[Finding]) -> bool:
    """Print them; return whether none is fatal."""
    width = max(len(finding.subject) for finding in findings)
    for finding in findings:
        mark = "ok" if not finding.cost else "!!" if finding.is_fatal else "--"
        sys.stdout.write(f"{mark} {finding.subject:{width}}  {finding.state}\n")
        if finding.cost:
            sys.stdout.write(f"   {'':{width}}  {finding.cost}\n")
    return not any(finding.is_fatal for finding in findings)
