"""The bubblewrap tier: bwrap's arguments, on every machine, and their effect where it works (tiers.py)."""

import json
import os
from pathlib import Path

import pytest

from services.tools.sandbox import bubblewrap
from services.tools.sandbox.command import CommandExit
from services.tools.sandbox.supervisor.policy import Policy
from tests.support.tools.commands import bash, run_command
from tests.support.tools.tiers import TIERS

works = [tier for tier in TIERS if tier == "bubblewrap"]


def pairs(arguments: tuple[str, ...], option: str) -> list[str]:
    """Return the argument after each `option`."""
    return [arguments[index + 1] for index, value in enumerate(arguments) if value == option]


def test_every_namespace_is_unshared_and_the_environment_empty(folder: Path) -> None:
    arguments = bubblewrap.build_arguments(Policy(("true",), str(folder)), ())
    for name in ("user", "ipc", "pid", "net", "uts"):
        assert f"--unshare-{name}" in arguments
    assert {"--unshare-cgroup-try", "--clearenv", "--die-with-parent", "--disable-userns"} <= set(arguments)


def test_only_what_the_policy_names_is_writable(folder: Path) -> None:
    shared = folder.parent / "shared"
    shared.mkdir()
    arguments = bubblewrap.build_arguments(Policy(("true",), str(folder), writable=(str(shared),)), ())
    assert pairs(arguments, "--bind") == [str(shared), str(folder)]
    assert pairs(arguments, "--tmpfs") == ["/tmp", "/dev/shm"]
    assert "/usr" in pairs(arguments, "--ro-bind")
    assert not {"/", "/home", "/root", "/etc", "/var", "/proc", "/sys"} & set(pairs(arguments, "--ro-bind"))


def test_nothing_is_mounted_below_a_writable_folder(folder: Path) -> None:
    (folder / "skills").mkdir()
    (folder / "link").symlink_to(folder.parent)
    readable = (str(folder / "skills"), str(folder.parent / "tool.py"))
    (folder.parent / "tool.py").touch()
    arguments = bubblewrap.build_arguments(Policy(("true",), str(folder), readable=readable), ())
    mounted = pairs(arguments, "--ro-bind") + pairs(arguments, "--bind")
    assert str(folder.parent / "tool.py") in mounted
    assert [path for path in mounted if path.startswith(f"{folder}/")] == []


def test_missing_paths_are_not_mounted(folder: Path) -> None:
    arguments = bubblewrap.build_arguments(Policy(("true",), str(folder), readable=("/no/such",)), ())
    assert "/no/such" not in arguments


@pytest.mark.parametrize("tier", works)
async def test_a_command_sees_only_its_own_processes(folder: Path, tier: str) -> None:
    text, _ = await run_command(bash(folder, "echo $$; stat -c %n /proc/[0-9]* 2>/dev/null; hostname", tier))
    assert int(text.split()[0]) < 10
    assert text.split()[-1] == "sandbox"


@pytest.mark.parametrize("tier", works)
async def test_a_commands_shared_memory_is_private_and_bounded(folder: Path, tier: str) -> None:
    name = f"headrace-{os.getpid()}"
    text, _ = await run_command(bash(folder, f"head -c 100M /dev/zero >/dev/shm/{name}; du -m /dev/shm/{name}", tier))
    assert "No space left on device" in text
    assert text.splitlines()[-1].split() == ["64", f"/dev/shm/{name}"]
    assert name not in os.listdir("/dev/shm")


@pytest.mark.parametrize("tier", works)
async def test_files_created_inside_exist_outside(folder: Path, tier: str) -> None:
    text, ending = await run_command(bash(folder, "umask; echo made > a; chmod 750 a; stat -c %u a", tier))
    assert ending == CommandExit("exited", 0), text
    assert (folder / "a").read_text() == "made\n"
    assert (folder / "a").stat().st_mode & 0o777 == 0o750
    assert (folder / "a").stat().st_uid == os.getuid()


@pytest.mark.parametrize("tier", works)
async def test_the_private_home_is_removed(folder: Path, tier: str) -> None:
    text, _ = await run_command(bash(folder, "echo x > ~/a; cat ~/a; cd ~; pwd", tier))
    assert text.startswith("x\n")
    assert [path.name for path in folder.parent.iterdir()] == ["workspace"]


QUESTIONS = """
import json, os, sys
folder, pid, told = sys.argv[1], int(sys.argv[2]), []
for name, ask in {
    "a file's size and times": lambda: os.stat(f"{folder}/file"),
    "a link's target": lambda: os.readlink(f"{folder}/link"),
    "a folder, by changing into it": lambda: os.chdir(folder),
    "the names in a folder": lambda: os.listdir(folder),
    "a file's content": lambda: open(f"{folder}/file"),
    "a process": lambda: os.stat(f"/proc/{pid}"),
    "a process's group": lambda: os.getpgid(pid),
    "a process's arguments": lambda: open(f"/proc/{pid}/cmdline"),
    "a process's folder": lambda: os.readlink(f"/proc/{pid}/cwd"),
    "a signal's way": lambda: os.kill(pid, 0),
}.items():
    try:
        ask()
        told.append(name)
    except OSError:
        pass
print(json.dumps(told))
"""

TOLD = {
    "process": [
        "a file's size and times",
        "a link's target",
        "a folder, by changing into it",
        "a process",
        "a process's group",
    ],
    "bubblewrap": [],
}


@pytest.mark.parametrize("tier", TIERS)
async def test_a_command_learns_of_others_only_what_the_documentation_states(tmp_path: Path, tier: str) -> None:
    own, foreign = tmp_path / "own", tmp_path / "foreign"
    own.mkdir()
    foreign.mkdir()
    (foreign / "file").touch()
    (foreign / "link").symlink_to("target")
    command = ("python3", "-c", QUESTIONS, str(foreign), str(os.getpid()))
    text, _ = await run_command(Policy(command, str(own), home_parent=str(tmp_path), namespaces=tier == "bubblewrap"))
    assert json.loads(text) == TOLD[tier]
