"""A workspace's size is watched while a command runs, in every tier that works here."""

import asyncio
import json
import shlex
import time
from contextlib import aclosing
from pathlib import Path

import pytest

from services.tools.sandbox.command import CommandExit, CommandOutput, stream_command
from services.tools.sandbox.supervisor.policy import Limits, Policy, Space
from services.tools.sandbox.supervisor.space_watch import Place, SpaceWatch
from services.tools.sandbox.tiers import Sandbox
from tests.support.tools.commands import bash, is_running, run_command
from tests.support.tools.suite import Serve
from tests.support.tools.tiers import TIERS

MIB = 1024 * 1024

tiers = pytest.mark.parametrize("tier", TIERS)


def policy(folder: Path, command: str, tier: str, space: Space) -> Policy:
    limits = Limits(file_bytes=space.bytes_max, home_files=500)
    return bash(folder, command, tier, space=space, limits=limits, timeout_s=60)


def python(code: str) -> str:
    return f"exec python3 -c {shlex.quote(code)}"


FILLS = {
    "many files": "for ((i = 0; ; i++)); do head -c 1000000 /dev/zero > $i; sleep 0.01; done",
    "a deep tree": "while mkdir d && cd d; do head -c 1000000 /dev/zero > f; sleep 0.01; done",
    "files without a name": python(
        "import os, time; files = []\n"
        "while True:\n"
        " files.append(open('f', 'wb', buffering=0)); os.unlink('f')\n"
        " files[-1].write(bytes(10**6)); time.sleep(0.01)"
    ),
    "a daemon's files": "(setsid bash -c 'for ((i = 0; ; i++)); do head -c 1000000 /dev/zero > $i; sleep 0.01; done' &)"
    "\nsleep 1060.5",
    "a folder that is closed": python(
        "import os, time; os.mkdir('d')\n"
        "files = [open(f'd/{n}', 'wb', buffering=0) for n in range(100)]; os.chmod('d', 0)\n"
        "for file in files: file.write(bytes(10**6)); time.sleep(0.01)\n"
        "time.sleep(1060.5)"
    ),
}


@tiers
@pytest.mark.parametrize("command", FILLS.values(), ids=FILLS.keys())
async def test_a_command_that_exceeds_the_workspaces_bytes_is_killed(folder: Path, tier: str, command: str) -> None:
    _, ending = await run_command(policy(folder, command, tier, Space(8 * MIB, 10_000)))
    assert ending.reason == "full"
    assert ending.error.startswith("the workspace is over its limit: ")
    assert f"of {8 * MIB} bytes" in ending.error
    assert not is_running("1060.5")


NAMES = {
    "files": "for ((i = 0; ; i++)); do : > $i; done",
    "folders": python("import os\nfor i in range(10**9): os.mkdir(str(i))"),
    "links": python("import os\nfor i in range(10**9): os.symlink('x', str(i))"),
    "names of one file": python("import os\nopen('f', 'w')\nfor i in range(10**9): os.link('f', str(i))"),
}


@tiers
@pytest.mark.parametrize("command", NAMES.values(), ids=NAMES.keys())
async def test_a_command_that_exceeds_the_workspaces_file_count_is_killed(
    folder: Path, tier: str, command: str
) -> None:
    _, ending = await run_command(policy(folder, command, tier, Space(100 * MIB, 500)))
    assert ending.reason == "full"
    assert "of 500 files are used" in ending.error


@tiers
async def test_the_private_home_is_limited_too(folder: Path, tier: str) -> None:
    command = python("import os; os.chdir(os.environ['HOME'])\nfor i in range(10**9): os.mkdir(str(i))")
    _, ending = await run_command(policy(folder, command, tier, Space(100 * MIB, 500)))
    assert ending.reason == "full"
    assert ending.error.startswith("the private home is over its limit: ")


@tiers
async def test_a_command_below_the_limits_is_not_killed(folder: Path, tier: str) -> None:
    command = "for i in $(seq 10); do head -c 900000 /dev/zero > f; sleep 0.1; rm f; done; ln -s / link; echo done"
    assert await run_command(policy(folder, command, tier, Space(2 * MIB, 20))) == ("done\n", CommandExit("exited", 0))


@tiers
async def test_a_folder_that_cannot_be_measured_ends_no_command(folder: Path, tier: str) -> None:
    command = "echo up; while [ ! -e go ]; do sleep 0.01; done; exit 3"
    async with (
        asyncio.timeout(100),
        aclosing(stream_command(policy(folder, command, tier, Space(8 * MIB, 500)))) as stream,
    ):
        assert await anext(stream) == CommandOutput("stdout", "up\n")
        elsewhere = folder.rename(folder.with_name("elsewhere"))  # noqa: ASYNC240
        await asyncio.sleep(0.3)  # some looks
        (elsewhere / "go").touch()
        assert await anext(stream) == CommandExit("exited", 3)


@tiers
async def test_a_command_in_a_full_workspace_may_delete_but_not_add(folder: Path, tier: str) -> None:
    for number in range(40):
        (folder / str(number)).write_bytes(bytes(10_000))
    full = Space(100_000, 20, is_full=True)
    command = "for i in $(seq 0 29); do rm $i; sleep 0.01; done; echo done"
    adding = "for ((i = 0; ; i++)); do : > a$i; done"
    _, ending = await run_command(policy(folder, adding, tier, full))
    assert ending.reason == "full"
    assert await run_command(policy(folder, command, tier, full)) == ("done\n", CommandExit("exited", 0))


@tiers
async def test_the_model_receives_the_limit_and_the_usage(serve: Serve, tier: str) -> None:
    sandbox = Sandbox(tier)  # pyright: ignore[reportArgumentType] - one of its literals
    async with serve(sandbox, workspace_bytes_max=4 * MIB) as suite:
        _, filling = await suite.execute("_bash_", json.dumps({"command": FILLS["many files"]}))
        _, refused = await suite.execute("write_file", '{"path": "a", "content": "x"}')
        _, deleting = await suite.execute("_bash_", '{"command": "rm *[0-9]; echo done"}')
        _, written = await suite.execute("write_file", '{"path": "a", "content": "x"}')
    assert not filling.ok
    assert "[ended: the workspace is over its limit: " in filling.result
    assert f" of {4 * MIB} bytes" in filling.result
    assert "nothing can be written until files are deleted]" in filling.result
    assert "the workspace is full" in refused.result
    assert (deleting.result, written.ok) == ("done\n", True)


async def test_an_interpreter_that_fills_the_workspace_is_ended(serve: Serve) -> None:
    code = "import os\nn = 0\nwhile True:\n    n += 1\n    open(str(n), 'wb').write(bytes(10**5))"
    async with serve(workspace_bytes_max=4 * MIB, lasting=True) as suite:
        _, outcome = await suite.execute("python", json.dumps({"code": code}))
        _, after = await suite.execute(
            "python", '{"code": "import os; [os.unlink(p) for p in os.listdir() if p[0] in \'123456789\']"}'
        )
        _, again = await suite.execute("python", "{\"code\": \"open('a', 'w').write('x')\"}")
    assert "the workspace is over its limit: " in outcome.result
    assert (after.ok, again.result) == (True, "1\n"), after.result


def test_measuring_takes_a_twentieth_of_a_processor(folder: Path) -> None:
    for number in range(3000):
        (folder / str(number)).touch()
    watch = SpaceWatch([Place("workspace", str(folder), 100 * MIB, 10_000)])
    began_s, paused_s = time.process_time(), 0.0
    for _ in range(50):
        assert watch.look() == ""
        paused_s += watch.due_s - time.monotonic()
    assert time.process_time() - began_s < 0.06 * paused_s


def test_a_disk_whose_free_space_is_unknown_ends_no_command(folder: Path) -> None:
    watch = SpaceWatch([Place("workspace", str(folder), 100 * MIB, 10_000, reserve_bytes=1)])
    assert watch.look() == ""
    folder.rename(folder.with_name("elsewhere"))
    assert [watch.look() for _ in range(3)] == [""] * 3
