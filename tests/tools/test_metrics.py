"""What the tools service shows Prometheus: the time of calls, by tool and how they ended."""

import asyncio

from prometheus_client import REGISTRY

from headrace.streams import reading
from tests.support.tools.calls import deltas_of, request
from tests.support.tools.suite import Serve


def counted(tool: str, outcome: str) -> float:
    return REGISTRY.get_sample_value("headrace_tool_seconds_count", {"tool": tool, "outcome": outcome}) or 0.0


async def test_a_call_is_counted_by_its_tool_and_its_end(serve: Serve) -> None:
    ok, failed, left = counted("list_files", "ok"), counted("read_file", "failed"), counted("_bash_", "left")
    async with serve() as suite:
        await deltas_of(suite, request("LIST_files", {}))
        await deltas_of(suite, request("read_file", {"path": "nothing"}))
        async with reading(suite.stub.Execute(request("_bash_", {"command": "echo on; sleep 9"}))) as deltas:
            await anext(deltas)
        while counted("_bash_", "left") == left:
            await asyncio.sleep(0.01)
    assert (counted("list_files", "ok"), counted("read_file", "failed")) == (ok + 1, failed + 1)
