"""What was spent, from the command line: a table of what was asked for."""

from pathlib import Path

from tests.support.command_line import run
from tests.support.facade.scripted import suite


async def test_a_table_of_days_with_its_sum(tmp_path: Path) -> None:
    async with suite(tmp_path) as facade:
        code, table, _ = await run("spend", url=facade.url)
        _, by_agent, _ = await run("spend", "--by", "day", "--by", "agent", "--tenant", "--user", "ada", url=facade.url)
        wrong = await run("spend", "--by", "tenant", url=facade.url)
    assert (code, wrong[0]) == (0, 2)
    assert [line.split() for line in table.decode().splitlines()] == [
        ["day", "usd", "in", "cached", "out", "calls"],
        ["2026-11-22", "1.500000", "1200", "1000", "34", "2"],
        ["2026-11-23", "0.004000", "1200", "1000", "34", "2"],
        ["total", "1.504000", "2400", "2000", "68", "4"],
    ]
    assert by_agent.decode().splitlines()[2].split()[:3] == ["2026-11-23", "clerk", "0.004000"]
    asked = facade.script.requests[1]
    assert (list(asked.group_by), asked.scope, asked.user) == (["day", "agent"], "tenant", "ada")
