"""The self-test on this machine's sandbox, and for machines where something is missing."""

import pytest
from prometheus_client import generate_latest

from services.tools.sandbox import tiers
from services.tools.sandbox.command import CommandExit
from services.tools.sandbox.supervisor import seccomp
from services.tools.sandbox.supervisor.syscalls import LAST_KNOWN
from services.tools.sandbox.tiers import Sandbox, Tier
from tests.support.tools.tiers import TIERS


async def test_this_machine_has_the_process_tier() -> None:
    assert await tiers.find_sandbox("process", allow_unsandboxed=False) == Sandbox("process")


async def test_auto_selects_the_strongest_working_tier() -> None:
    found = await tiers.find_sandbox("auto", allow_unsandboxed=False)
    assert found.tier == TIERS[-1]
    assert found.is_confined
    assert found.has_namespaces == ("bubblewrap" in TIERS)


def test_several_tenants_share_the_process_tier_only_when_configured() -> None:
    problems: dict[tiers.Tested, str] = {"bubblewrap": "not installed"}
    assert tiers.choose_tier(problems, allow_unsandboxed=False).tier == "process"
    shared = tiers.choose_tier(problems, allow_unsandboxed=False, has_tenants=True)
    assert shared.tier is None
    assert "HEADRACE_TOOLS_SANDBOX=process accepts that" in shared.problem
    assert tiers.choose_tier({}, allow_unsandboxed=False, has_tenants=True).tier == "bubblewrap"
    assert tiers.choose_tier(problems, allow_unsandboxed=True, has_tenants=True).tier == "process"


async def test_an_external_sandbox_has_the_process_tier_inside() -> None:
    found = await tiers.find_sandbox("external", allow_unsandboxed=False)
    assert (found.tier, found.is_confined, found.has_namespaces) == ("external", True, False)
    assert not Sandbox("external", "no Landlock").is_confined


async def test_no_sandbox_is_used_when_configured() -> None:
    assert not (await tiers.find_sandbox("none", allow_unsandboxed=True)).is_confined


async def test_the_self_test_detects_a_sandbox_that_denies_nothing() -> None:
    problem = await tiers.try_tier("none")
    assert "reads a file outside" in problem
    assert "opens a TCP socket" in problem
    assert "signals the service" in problem


@pytest.mark.parametrize(
    ("output", "ending", "problem"),
    [
        ("done\n", CommandExit("exited"), ""),
        ("opens a TCP socket\ndone\n", CommandExit("exited"), "a command opens a TCP socket"),
        ("", CommandExit("failed", error="no Landlock"), "no Landlock"),
        ("", CommandExit("exited", -31), "the probes ended early: exited, status -31"),
        ("done\n", CommandExit("timeout"), "the probes ended early: timeout, status 0"),
    ],
)
def test_the_self_test_passes_only_when_all_probes_pass(output: str, ending: CommandExit, problem: str) -> None:
    assert tiers.find_failures(output, ending) == problem


def test_a_weaker_tier_is_never_selected_silently() -> None:
    broken: dict[tiers.Tested, str] = {"bubblewrap": "not installed", "process": "no Landlock"}
    problem = "bubblewrap: not installed; process: no Landlock"
    assert tiers.choose_tier(broken, allow_unsandboxed=False) == Sandbox(None, problem)
    assert tiers.choose_tier(broken, allow_unsandboxed=True) == Sandbox("none", problem)
    assert tiers.choose_tier({"bubblewrap": "x"}, allow_unsandboxed=True) == Sandbox("process", "bubblewrap: x")
    assert tiers.choose_tier({}, allow_unsandboxed=True) == Sandbox("bubblewrap")


@pytest.mark.parametrize(("tier", "label"), [("bubblewrap", "bubblewrap"), (None, "refused")])
def test_the_tier_is_a_metric(tier: Tier | None, label: str) -> None:
    Sandbox(tier).show_in_metrics()
    assert f'headrace_sandbox_tier{{tier="{label}"}} 1.0' in generate_latest().decode()


@pytest.mark.parametrize("truncates_read", [False, True])
@pytest.mark.parametrize("machine", seccomp.ARCHITECTURES)
def test_every_jump_of_the_filter_stays_within_it(machine: str, truncates_read: bool) -> None:
    instructions = seccomp.build_program(machine, (10, 20), truncates_read=truncates_read)
    assert len(instructions) < 4096  # the kernel's limit
    for index, (code, if_true, if_false, _) in enumerate(instructions):
        if code in (seccomp.JUMP_EQUAL, seccomp.JUMP_GREATER, seccomp.JUMP_SET):
            assert index + 1 + max(if_true, if_false) < len(instructions)
    assert instructions[-1] == (seccomp.RETURN, 0, 0, seccomp.ALLOW)


@pytest.mark.parametrize(("machine", "column"), [("x86_64", 0), ("aarch64", 1)])
def test_no_system_call_is_listed_twice(machine: str, column: int) -> None:
    numbers = [number for calls in seccomp.DENIED.values() for pair in calls.values() if (number := pair[column])]
    assert len(numbers) == len(set(numbers)), machine
    assert max(numbers) <= LAST_KNOWN


def test_an_unknown_machine_is_refused() -> None:
    with pytest.raises(OSError, match="riscv64"):
        seccomp.build_program("riscv64", ())
