"""The bubblewrap tier: what bwrap is told, on every machine; what then happens, where it works (tiers.py)."""

import json
import os
from pathlib import Path

import pytest

from services.tools.sandbox import bubblewrap
from services.tools.sandbox.command import CommandExit
from services.tools.sandbox.supervisor.policy import Policy
from tests.support.tools.commands import bash, said
from tests.support.tools.tiers import TIERS

works = [tier for tier in TIERS if tier == "bubblewrap"]


def pairs(arguments: tuple[str, ...], option: str) -> list[str]:
    """What follows each `option`."""
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


def test_nothing_is_mounted_below_what_a_command_may_write(folder: Path) -> None:
    (folder / "skills").mkdir()
    (folder / "link").symlink_to(folder.parent)
    readable = (str(folder / "skills"), str(folder.parent / "tool.py"))
    (folder.parent / "tool.py").touch()
    arguments = bubblewrap.build_arguments(Policy(("true",), str(folder), readable=readable), ())
    mounted = pairs(arguments, "--ro-bind") + pairs(arguments, "--bind")
    assert str(folder.parent / "tool.py") in mounted
    assert [path for path in mounted if path.startswith(f"{folder}/")] == []


def test_what_does_not_exist_is_left_out(folder: Path) -> None:
    arguments = bubblewrap.build_arguments(Policy(("true",), str(folder), readable=("/no/such",)), ())
    assert "/no/such" not in arguments


@pytest.mark.parametrize("tier", works)
async def test_only_its_own_processes_are_there(folder: Path, tier: str) -> None:
    text, _ = await said(bash(folder, "echo $$; stat -c %n /proc/[0-9]* 2>/dev/null; hostname", tier))
    assert int(text.split()[0]) < 10
    assert text.split()[-1] == "sandbox"


@pytest.mark.parametrize("tier", works)
async def test_shared_memory_is_its_own_and_bounded(folder: Path, tier: str) -> None:
    name = f"headrace-{os.getpid()}"
    text, _ = await said(bash(folder, f"head -c 100M /dev/zero >/dev/shm/{name}; du -m /dev/shm/{name}", tier))
    assert "No space left on device" in text
    assert text.splitlines()[-1].split() == ["64", f"/dev/shm/{name}"]
    assert name not in os.listdir("/dev/shm")


@pytest.mark.parametrize("tier", works)
async def test_files_made_inside_are_there_outside(folder: Path, tier: str) -> None:
    text, ending = await said(bash(folder, "umask; echo made > a; chmod 750 a; stat -c %u a", tier))
    assert ending == CommandExit("exited", 0), text
    assert (folder / "a").read_text() == "made\n"
    assert (folder / "a").stat().st_mode & 0o777 == 0o750
    assert (folder / "a").stat().st_uid == os.getuid()


@pytest.mark.parametrize("tier", works)
async def test_nothing_of_the_home_is_left(folder: Path, tier: str) -> None:
    text, _ = await said(bash(folder, "echo x > ~/a; cat ~/a; cd ~; pwd", tier))
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
async def test_what_a_command_can_tell_of_others_is_what_we_say(tmp_path: Path, tier: str) -> None:
    own, foreign = tmp_path / "own", tmp_path / "foreign"
    own.mkdir()
    foreign.mkdir()
    (foreign / "file").touch()
    (foreign / "link").symlink_to("target")
    command = ("python3", "-c", QUESTIONS, str(foreign), str(os.getpid()))
    text, _ = await said(Policy(command, str(own), home_parent=str(tmp_path), namespaces=tier == "bubblewrap"))
    assert json.loads(text) == TOLD[tier]
