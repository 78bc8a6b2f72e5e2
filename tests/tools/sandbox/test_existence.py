"""What a command can tell of paths and processes that are not its own: much in the process tier, nothing in namespaces.
docs/threat-model.md names the same things.
"""

import json
import os
from pathlib import Path

import pytest

from services.tools.sandbox.supervisor.policy import Policy
from tests.support.tools.commands import said
from tests.support.tools.tiers import TIERS

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
