"""The self-test against this machine's sandbox, and against machines where something is missing."""

from __future__ import annotations

import pytest

from services.tools.sandbox import seccomp, selftest
from services.tools.sandbox.process import Exited
from services.tools.sandbox.syscalls import LAST_KNOWN


async def test_this_machine_has_the_process_tier() -> None:
    assert await selftest.find_sandbox(allow_unsandboxed=False) == selftest.Sandbox("process")


async def test_a_sandbox_that_denies_nothing_is_found_out() -> None:
    problem = await selftest.try_process_tier(confined=False)
    assert "reads a file outside" in problem
    assert "opens a TCP socket" in problem
    assert "signals the service" in problem


@pytest.mark.parametrize(
    ("said", "ending", "problem"),
    [
        ("done\n", Exited("exited"), ""),
        ("opens a TCP socket\ndone\n", Exited("exited"), "a command opens a TCP socket"),
        ("", Exited("failed", error="no Landlock"), "no Landlock"),
        ("", Exited("exited", -31), "the probes ended early: exited, status -31"),
        ("done\n", Exited("timeout"), "the probes ended early: timeout, status 0"),
    ],
)
def test_only_probes_that_all_end_well_are_good(said: str, ending: Exited, problem: str) -> None:
    assert selftest.judge(said, ending) == problem


def test_no_tier_is_taken_silently() -> None:
    assert selftest.choose("broken", allow_unsandboxed=False) == selftest.Sandbox(None, "broken")
    assert selftest.choose("broken", allow_unsandboxed=True) == selftest.Sandbox("none", "broken")
    assert selftest.choose("", allow_unsandboxed=True) == selftest.Sandbox("process")


@pytest.mark.parametrize("machine", seccomp.ARCHITECTURES)
def test_every_path_through_the_filter_ends(machine: str) -> None:
    instructions = seccomp.program(machine, (10, 20))
    assert len(instructions) < 4096  # the kernel's limit
    for index, (code, if_true, if_false, _) in enumerate(instructions):
        if code in (seccomp.JUMP_EQUAL, seccomp.JUMP_GREATER, seccomp.JUMP_SET):
            assert index + 1 + max(if_true, if_false) < len(instructions)
    assert instructions[-1] == (seccomp.RETURN, 0, 0, seccomp.ALLOW)


@pytest.mark.parametrize(("machine", "column"), [("x86_64", 0), ("aarch64", 1)])
def test_no_call_is_listed_twice(machine: str, column: int) -> None:
    numbers = [number for calls in seccomp.DENIED.values() for pair in calls.values() if (number := pair[column])]
    assert len(numbers) == len(set(numbers)), machine
    assert max(numbers) <= LAST_KNOWN


def test_an_unknown_machine_is_refused() -> None:
    with pytest.raises(OSError, match="riscv64"):
        seccomp.program("riscv64", ())
