"""The audit log from the command line: shown, exported, and verified whole, changed and cut."""

import json
from pathlib import Path

from tests.support.command_line import run
from tests.support.facade.scripted import suite


async def test_the_log_is_shown_exported_and_verified(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    async with suite(tmp_path) as facade:
        await run("keys", "create", "the build", "--user", "builds", url=facade.url)
        _, shown, _ = await run("audit", "tail", "--event", "key", url=facade.url)
        exported, _, told = await run("audit", "export", "--output", str(path), url=facade.url)
        _, stored, _ = await run("audit", "verify", url=facade.url)
    assert exported == 0
    head, line = shown.decode().splitlines()
    assert head.split() == ["number", "at", "event", "by", "facts"]
    assert line.split()[3] == "key.made"
    assert b"of=builds" in shown
    lines = path.read_text().splitlines()
    last = json.loads(lines[-1])
    assert (last["event"], last["hash"] in told.decode()) == ("audit.exported", True)
    assert b"2 lines are as they were written" in stored
    assert (await run("audit", "verify", str(path), "--hash", last["hash"], url=""))[0] == 0
    for changed, place in (
        ([lines[0].replace("builds", "others"), lines[1]], b"line 1, behind number 0, was changed"),
        (lines[:1], b"line 2 is missing: the file is cut"),
        (lines[::-1], b"line 2, behind number 2, does not follow"),
    ):
        path.write_text("".join(f"{line}\n" for line in changed))
        code, _, problem = await run("audit", "verify", str(path), url="")
        assert code == 1
        assert place in problem
