"""The tools of a server, from the command line."""

from pathlib import Path

from headrace.v1 import tools_pb2
from tests.support.command_line import run
from tests.support.facade.scripted import suite


async def test_tools_are_listed_with_what_cannot_be_used(tmp_path: Path) -> None:
    async with suite(tmp_path) as facade:
        facade.tools.listed = [
            tools_pb2.Tool(name="read_file", tier="core", effect="read"),
            tools_pb2.Tool(name="s__bad", tier="enabled", effect="once", unavailable="inputSchema: a list"),
        ]
        code, out, _ = await run("tools", url=facade.url)
    head, *rows = [line.split(maxsplit=3) for line in out.decode().splitlines()]
    assert (code, head) == (0, ["tool", "tier", "effect", "cannot be used"])
    assert rows == [["read_file", "core", "read", "-"], ["s__bad", "enabled", "once", "inputSchema: a list"]]
