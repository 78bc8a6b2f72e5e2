"""Facts from the command line: kept, listed, found, changed, exported, deleted."""

import json
import re
from pathlib import Path

from tests.support.command_line import run
from tests.support.facade.scripted import suite

NO_FACT = "11111111-1111-4111-8111-111111111111"


async def test_facts_are_kept_listed_and_found(tmp_path: Path) -> None:
    async with suite(tmp_path) as facade:
        _, out, _ = await run("facts", "remember", "lives in Oslo", "--topic", "home town", url=facade.url)
        old = out.decode().strip()
        _, out, _ = await run("facts", "remember", "lives in\nRome", "--topic", "home town", url=facade.url)
        new = out.decode().strip()
        await run("facts", "remember", "likes tea", "--agent", "guide", url=facade.url)
        code, out, _ = await run("facts", "list", url=facade.url)
        _, ended, _ = await run("facts", "list", "--ended", "--scope", "user", url=facade.url)
        _, found, _ = await run("facts", "search", "where in Rome?", url=facade.url)
        refused, _, complaint = await run("facts", "remember", "x", "--tenant", url=facade.url)
        wrong, _, _ = await run("facts", "remember", "x", "--tenant", "--agent", "a", url=facade.url)
    assert code == 0
    head, *rows = (re.split(r"  +", line) for line in out.decode().splitlines())
    assert head == ["id", "updated", "scope", "agent", "topic", "text", "ended"]
    assert [row[2:] for row in rows] == [
        ["agent", "guide", "-", "likes tea", "-"],
        ["user", "-", "home town", "lives in Rome", "-"],
    ]
    assert rows[1][0] == new
    assert [line.split()[0] for line in ended.decode().splitlines()] == ["id", new, old]
    assert not ended.decode().endswith("-\n")
    assert found.decode().splitlines()[1].startswith(new)
    assert (refused, wrong) == (1, 2)
    assert b"HEADRACE_MEMORY_TENANT_FACTS" in complaint


async def test_facts_are_changed_exported_and_deleted(tmp_path: Path) -> None:
    async with suite(tmp_path) as facade:
        ids = [(await run("facts", "remember", text, url=facade.url))[1].decode().strip() for text in ("tea", "milk")]
        changed, _, _ = await run("facts", "edit", ids[0], "--text", "水", url=facade.url)
        nothing, _, _ = await run("facts", "edit", ids[0], url=facade.url)
        deleted, _, _ = await run("facts", "delete", ids[1], url=facade.url)
        missing, _, complaint = await run("facts", "delete", NO_FACT, url=facade.url)
        _, out, _ = await run("facts", "export", url=facade.url)
    assert (changed, nothing, deleted, missing) == (0, 2, 0, 1)
    assert b"does not exist" in complaint
    lines = [json.loads(line) for line in out.decode().splitlines()]
    assert [(line["factId"], line["text"], line["deletedAt"] > 0) for line in lines] == [
        (ids[0], "水", False),
        (ids[1], "", True),
    ]
    assert "水" in out.decode()
