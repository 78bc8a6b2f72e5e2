"""`headrace doctor`: what a machine lacks, and what that costs."""

import os
import shutil
import socket

import pytest

from services.config_check.machine import describe_sandbox, examine_machine
from services.tools.sandbox.tiers import Sandbox
from tests.support.command_line import run


@pytest.mark.parametrize(
    ("sandbox", "has_tenants", "cost", "is_fatal"),
    [
        (Sandbox("bubblewrap"), True, "", False),
        (
            Sandbox("process", "bubblewrap: bwrap is not installed"),
            False,
            "with authentication they are refused",
            False,
        ),
        (Sandbox("process"), True, "cannot be given a network; remedy", False),
        (Sandbox(None, "bwrap is not installed"), True, "are refused; remedy: apt install bubblewrap", True),
        (Sandbox("none"), False, "unconfined", False),
    ],
)
def test_a_tier_says_what_it_costs(sandbox: Sandbox, has_tenants: bool, cost: str, is_fatal: bool) -> None:
    finding = describe_sandbox(sandbox, has_tenants=has_tenants)
    assert cost in finding.cost
    assert bool(cost) == bool(finding.cost)
    assert finding.is_fatal == is_fatal


async def test_with_authentication_only_bubblewrap_is_enough() -> None:
    findings = await examine_machine({"HEADRACE_AUTH": "api_key"})
    [sandbox] = [finding for finding in findings if finding.subject == "sandbox"]
    assert sandbox.is_fatal == (shutil.which("bwrap") is None) or "bwrap" in sandbox.state


async def test_a_database_that_cannot_be_reached_is_fatal_and_its_password_is_not_shown() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"postgresql://mill:hidden-4711@127.0.0.1:{taken.getsockname()[1]}/headrace"
        code, out, _ = await run("doctor", HEADRACE_DATABASE_URL=url, PATH=os.environ["PATH"])
    assert code == 1
    assert b"!! PostgreSQL" in out
    assert b"hidden" not in out
