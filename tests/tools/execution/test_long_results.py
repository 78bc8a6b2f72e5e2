"""Results longer than what a model gets: cut, and whole in the workspace."""

from __future__ import annotations

import json
from urllib.parse import parse_qs, urlsplit

from hypothesis import given
from hypothesis import strategies as st

from headrace.streams import reading
from headrace.v1 import agent_pb2
from services.tools.execution.long_results import shorten_result
from services.tools.toolkit.tool import RESULT_CHARS_MAX
from tests.support.tools.suite import CHAT, RUN, Serve

LONG = '{"command": "seq 100000; echo end"}'
WHOLE = "".join(f"{number}\n" for number in range(1, 100_001)) + "end\n"


async def test_a_long_result_is_cut_and_the_whole_is_a_file_that_it_names(serve: Serve) -> None:
    async with serve() as suite:
        pieces, outcome = await suite.execute("_bash_", LONG)
        path = outcome.result.partition("the whole is in ")[2].partition(" …]")[0]
        _, read = await suite.execute("read_file", json.dumps({"path": path, "firstLine": 100_000}))
        assert (suite.workspace / path).read_text() == WHOLE
    assert "".join(text for _, text in pieces).endswith("100000\nend\n")
    assert path.startswith("outputs/results/_bash_-")
    assert len(outcome.result) == RESULT_CHARS_MAX
    assert f"{len(WHOLE)} characters" in outcome.result
    assert outcome.result.startswith("1\n2\n")
    assert outcome.result.endswith("100000\nend\n")
    assert read.result == "100000\nend\n"


async def test_the_whole_is_published_before_the_result(serve: Serve) -> None:
    artifacts: list[agent_pb2.ArtifactPublish] = []
    async with serve() as suite, reading(suite.call("_bash_", LONG)) as deltas:
        kinds: list[str] = []
        async for delta in deltas:
            kinds.append(delta.WhichOneof("delta"))
            if delta.HasField("artifact"):
                artifacts.append(delta.artifact)
        (whole,) = [artifact for artifact in artifacts if artifact.name.startswith("_bash_-")]
        path = parse_qs(urlsplit(whole.url).query)
        assert path["chatId"] == [CHAT]
        assert (suite.workspace / path["path"][0]).stat().st_size == whole.size_bytes == len(WHOLE)
    assert kinds[-1] == "result"
    assert (whole.run_id, whole.mime_type) == (RUN, "text/plain")


async def test_a_workspace_that_takes_no_file_costs_the_whole_and_not_the_result(serve: Serve) -> None:
    async with serve() as suite:
        await suite.execute("write_file", '{"path": "outputs/results", "content": "in the way"}')
        _, outcome = await suite.execute("_bash_", LONG)
    assert outcome.ok
    assert "the whole could not be kept" in outcome.result


async def test_a_long_failure_is_bounded_too(serve: Serve) -> None:
    async with serve() as suite:
        _, outcome = await suite.execute("read_file", json.dumps({"path": "x" * 100_000}))
        _, violation = await suite.execute("read_file", json.dumps({"path": ["x" * 100_000]}))
    assert not outcome.ok
    assert len(outcome.result) == RESULT_CHARS_MAX
    assert len(violation.result) < 1000


@given(st.integers(0, 3 * RESULT_CHARS_MAX), st.sampled_from(["", "outputs/results/tool-01234567.txt"]))
def test_what_the_model_gets_is_bounded_and_shorter_texts_are_whole(length: int, path: str) -> None:
    text = "x" * length
    assert len(shorten_result(text, path)) == min(length, RESULT_CHARS_MAX)
    assert (shorten_result(text, path) == text) == (length <= RESULT_CHARS_MAX)
    assert (path in shorten_result(text, path)) == (length > RESULT_CHARS_MAX or not path)
