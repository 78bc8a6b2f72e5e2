"""Real commands on this machine, in the process tier unless a test names another."""

import asyncio
import os
import signal
import time
from contextlib import aclosing
from pathlib import Path

import pytest

from services.tools.sandbox.command import CommandExit, CommandOutput, stream_command
from services.tools.sandbox.supervisor.policy import Policy
from tests.support.timing import until_still, within
from tests.support.tools.commands import bash, events, is_running, run_command
from tests.support.tools.processes import processes
from tests.support.tools.tiers import TIERS

tiers = pytest.mark.parametrize("tier", TIERS)


async def test_both_streams_and_the_exit_code_arrive(folder: Path) -> None:
    found = await events(bash(folder, "echo out; echo err >&2; exit 3"))
    assert CommandOutput("stdout", "out\n") in found
    assert CommandOutput("stderr", "err\n") in found
    assert found[-1] == CommandExit("exited", 3)


async def test_output_arrives_while_the_command_runs(folder: Path) -> None:
    async with asyncio.timeout(100), aclosing(stream_command(bash(folder, "echo first; sleep 1000.5"))) as stream:
        assert await anext(stream) == CommandOutput("stdout", "first\n")


async def test_split_characters_are_held_until_they_are_whole(folder: Path) -> None:
    found = await events(bash(folder, r"printf '\xe4\xbd'; sleep 0.1; printf '\xa0\xff'; sleep 0.1; printf '\xe4'"))
    assert [event.text for event in found if isinstance(event, CommandOutput)] == ["你\ufffd", "\ufffd"]


async def test_the_signal_that_ended_a_command_is_reported(folder: Path) -> None:
    assert (await run_command(bash(folder, "kill -9 $$")))[1] == CommandExit("exited", -9)


async def test_a_missing_program_is_a_failure(folder: Path) -> None:
    _, ending = await run_command(Policy(("no-such-program",), str(folder), home_parent=str(folder.parent)))
    assert ending.reason == "failed"
    assert "there is no program 'no-such-program'" in ending.error


async def test_input_is_read_to_its_end(folder: Path) -> None:
    text, _ = await run_command(bash(folder, "wc -c", input="x" * 200_000))
    assert text.strip() == "200000"


async def test_the_environment_holds_four_names(folder: Path) -> None:
    text, _ = await run_command(Policy(("env",), str(folder), home_parent=str(folder.parent)))
    assert sorted(line.partition("=")[0] for line in text.splitlines()) == ["HOME", "LANG", "PATH", "TMPDIR"]


async def test_a_long_here_document_is_stored_in_the_private_home(folder: Path) -> None:
    """bash stores a here-document in a file when it does not fit into a pipe."""
    text, _ = await run_command(bash(folder, f"cat <<'END' | wc -c\n{'x' * 99_000}\nEND\nmktemp"))
    assert text.startswith(f"99001\n{folder.parent}/headrace-")


async def test_home_is_private_writable_and_gone_afterwards(folder: Path) -> None:
    text, ending = await run_command(
        bash(folder, 'echo "$HOME"; mkdir -p ~/a/b; ln -s / ~/a/link; touch ~/a/b/c; chmod 000 ~')
    )
    assert ending.reason == "exited"
    assert text.startswith(f"{folder.parent}/headrace-")
    assert [path.name for path in folder.parent.iterdir()] == ["workspace"]


async def test_a_private_home_that_cannot_be_created_is_reported(folder: Path) -> None:
    command = Policy(("true",), str(folder), home_parent=str(folder / "nothing"))
    _, ending = await run_command(command)
    assert (ending.reason, ending.error.partition("/headrace-")[0]) == (
        "failed",
        f"[Errno 2] No such file or directory: '{folder}/nothing",
    )


async def test_the_workspace_is_the_working_directory(folder: Path) -> None:
    await events(bash(folder, "mkdir -p outputs; echo made > outputs/a.txt; mv outputs/a.txt b.txt; ln -s b.txt c"))
    assert (folder / "b.txt").read_text() == "made\n"


PYTHON_SAYS = """
import os
try:
    print("did", {})
except OSError as error:
    print("refused", error.errno)
"""

DENIED = {
    "its limits": "__import__('resource').prlimit(os.getppid(), 7, (9, 9))",
    "its priority": "os.setpriority(os.PRIO_PROCESS, os.getppid(), 5)",
    "a signal to it": "os.kill(os.getppid(), 0)",
    "its environment": "open(f'/proc/{os.getppid()}/environ')",
    "the shared /tmp": "open('/tmp/headrace-test', 'w')",
}
"""What the attempts of attacks/table.py, whose parent is no supervisor, cannot try."""


@pytest.mark.parametrize("attempt", DENIED.values(), ids=DENIED.keys())
async def test_a_command_cannot_reach_its_supervisor(folder: Path, attempt: str) -> None:
    command = Policy(("python3", "-c", PYTHON_SAYS.format(attempt)), str(folder), home_parent=str(folder.parent))
    text, _ = await run_command(command)
    assert text.startswith("refused"), text


async def test_ordinary_programs_work(folder: Path) -> None:
    code = (
        "import socket, threading, subprocess; a, b = socket.socketpair(); "
        "t = threading.Thread(target=print); t.start(); t.join(); print(subprocess.check_output(['echo', 'ok']))"
    )
    command = f'cat <(echo one) | sort; timeout 5 true && nice true; cp -r . ~/copy; python3 -c "{code}"'
    text, ending = await run_command(bash(folder, command))
    assert ending == CommandExit("exited", 0), text
    assert "one" in text
    assert "ok" in text


MODES = {
    "its own file": ("touch a; chmod 700 a; stat -c %a a", "700"),
    "recursively": ("mkdir -p d/e; touch d/e/f; chmod -R 750 d; stat -c %a d d/e d/e/f", "750 750 750"),
    "an executable": ("printf '#!/bin/sh\\necho ran' > a; chmod +x a; ./a", "ran"),
    "in its home": ("touch ~/a; chmod 600 ~/a; stat -c %a ~/a", "600"),
    "from Python": ("touch a; chmod 640 a; python3 -c \"import shutil; shutil.copy('a', 'b')\"; stat -c %a b", "640"),
    "without set-user-id": ("touch a; chmod 4755 a; stat -c %a a", "755"),
    "of a folder handle": (
        "mkdir d; touch d/a; python3 -c \"import os; os.chmod('a', 0o611, dir_fd=os.open('d', 0))\"; stat -c %a d/a",
        "611",
    ),
    "what is not there": ("chmod 700 nothing 2>&1 | grep -o 'No such file'", "No such file"),
}


@pytest.mark.parametrize(("command", "expected"), MODES.values(), ids=MODES.keys())
async def test_file_modes_can_be_changed_within_the_workspace(folder: Path, command: str, expected: str) -> None:
    text, _ = await run_command(bash(folder, command))
    assert text.split() == expected.split()


@pytest.mark.parametrize("path", ["..", "../outside", "link", "{folder}/../outside", "/proc/self/cwd/../outside"])
async def test_file_modes_cannot_be_changed_outside_the_workspace(folder: Path, path: str) -> None:
    outside = folder.parent / "outside"
    outside.touch(0o600)
    (folder / "link").symlink_to(outside)
    before = outside.stat().st_mode, folder.parent.stat().st_mode
    text, _ = await run_command(bash(folder, f"chmod 777 {path.format(folder=folder)}"))
    assert "Operation not permitted" in text or "No such file" in text
    assert (outside.stat().st_mode, folder.parent.stat().st_mode) == before


@tiers
async def test_a_daemon_does_not_outlive_the_command(folder: Path, tier: str) -> None:
    command = "(setsid nohup sleep 1001.5 >/dev/null 2>&1 &); setsid setsid sleep 1001.5 &"
    _, ending = await run_command(bash(folder, command, tier))
    assert ending == CommandExit("exited", 0)
    assert not is_running("1001.5")


async def test_a_command_that_ignores_sigterm_is_killed_after_its_timeout(folder: Path) -> None:
    started = time.monotonic()
    async with within(8):
        _, ending = await run_command(bash(folder, "trap '' TERM; sleep 1002.5; sleep 1002.5", timeout_s=3))
    assert ending.reason == "timeout"
    assert time.monotonic() - started > 3 + 1.8
    assert not is_running("1002.5")


@tiers
async def test_a_command_may_exit_by_itself_on_sigterm(folder: Path, tier: str) -> None:
    text, ending = await run_command(
        bash(folder, "trap 'echo bye; exit 4' TERM; sleep 1003.5 & wait", tier, timeout_s=3)
    )
    assert (text, ending) == ("bye\n", CommandExit("timeout", 4))
    assert not is_running("1003.5")


@tiers
async def test_closing_the_stream_kills_all_processes_at_once(folder: Path, tier: str) -> None:
    command = bash(folder, "setsid sleep 1004.5 & echo up; sleep 1004.5", tier)
    async with asyncio.timeout(100), aclosing(stream_command(command)) as stream:
        await anext(stream)
        async with within(0.5):
            await stream.aclose()
    assert not is_running("1004.5")


async def test_cancelling_the_reader_kills_all_processes(folder: Path) -> None:
    async def read() -> None:
        await events(bash(folder, "echo up > up; sleep 1005.5"))

    async with asyncio.timeout(100):
        reader = asyncio.create_task(read())
        while not (folder / "up").exists():
            await asyncio.sleep(0.01)
        reader.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reader
    assert not is_running("1005.5")


async def test_a_slow_reader_slows_the_command_down(folder: Path) -> None:
    command = "for i in $(seq 200); do head -c 10000 /dev/zero; echo $i > progress; done; sleep 1000.5"
    async with asyncio.timeout(100), aclosing(stream_command(bash(folder, command))) as stream:
        await anext(stream)
        progress = folder / "progress"
        assert await until_still(lambda: progress.exists() and int(progress.read_text() or 0)) < 100


@tiers
async def test_killing_the_supervisor_ends_the_stream(folder: Path, tier: str) -> None:
    started = "setsid sleep 1007.5" if tier == "bubblewrap" else "setsid sleep 3"  # nobody ends what left its group
    command = bash(folder, f"{started} & echo up; exec sleep 1007.5", tier)
    async with asyncio.timeout(100), aclosing(stream_command(command)) as stream:
        await anext(stream)
        (supervisor,) = processes()
        os.kill(supervisor, signal.SIGKILL)
        assert await anext(stream) == CommandExit("failed", error="its supervisor was killed")
        while is_running("1007.5"):
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("confined", [True, False])
async def test_a_command_inherits_no_descriptor_of_the_service(folder: Path, confined: bool) -> None:
    code = "import os\nfor fd in range(3, 64):\n try: os.fstat(fd); print(fd)\n except OSError: pass"
    policy = Policy(("python3", "-c", code), str(folder), home_parent=str(folder.parent), confined=confined)
    assert (await run_command(policy))[0] == ""


async def test_the_supervisor_ends_all_processes_even_without_confinement(folder: Path) -> None:
    text, _ = await run_command(bash(folder, f"setsid sleep 1006.5 & cat /proc/{os.getpid()}/stat", confined=False))
    assert text.startswith(str(os.getpid()))
    assert not is_running("1006.5")
