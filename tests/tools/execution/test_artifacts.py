"""A call's files in outputs/ are published once, before its result; a long result is cut, its whole kept as a file."""

import asyncio
import json
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from hypothesis import given
from hypothesis import strategies as st

from headrace.streams import reading
from headrace.v1 import agent_pb2
from services.tools.execution.results import ARTIFACTS_MAX, shorten_result
from services.tools.toolkit.tool import RESULT_CHARS_MAX
from tests.support.tools.suite import CHAT, RUN, Serve, Suite
from tests.support.tools.uploading import picture, read


async def artifacts(
    suite: Suite, tool: str, timeout_ms: int = 0, **arguments: object
) -> list[agent_pb2.ArtifactPublish]:
    """Execute a call and return the artifacts it publishes, which must come before the result."""
    async with reading(suite.call(tool, json.dumps(arguments), timeout_ms)) as deltas:
        kinds = [(delta.WhichOneof("delta"), delta) async for delta in deltas]
    assert [kind for kind, _ in kinds if kind != "output"][-1] == "result"
    return [delta.artifact for kind, delta in kinds if kind == "artifact"]


async def bash(suite: Suite, command: str, timeout_ms: int = 0) -> list[str]:
    return [artifact.name for artifact in await artifacts(suite, "_bash_", timeout_ms, command=command)]


async def test_a_file_written_to_outputs_is_published_with_its_type(serve: Serve) -> None:
    async with serve() as suite:
        (suite.workspace / "uploads").mkdir(parents=True)
        (suite.workspace / "uploads/a.png").write_bytes(picture("PNG", 5, 5))
        found = await artifacts(
            suite,
            "_bash_",
            command="echo 1,2 > outputs/b.csv; mkdir outputs/d; cp uploads/a.png outputs/d/水.dat; touch c",
        )
        query = parse_qs(urlsplit(found[1].url).query)
        info, _ = await read(suite.stub, query["path"][0])
    facts = [(artifact.run_id, artifact.name, artifact.mime_type, artifact.size_bytes) for artifact in found]
    assert facts == [(RUN, "b.csv", "text/csv", 4), (RUN, "水.dat", "image/png", info.size_bytes)]
    assert found[0].artifact_id != found[1].artifact_id
    assert (query["chatId"], query["path"]) == ([CHAT], ["outputs/d/水.dat"])


async def test_a_file_is_published_again_only_when_it_has_changed(serve: Serve) -> None:
    async with serve() as suite:
        assert await bash(suite, "echo 1 > outputs/a; echo 1 > outputs/b") == ["a", "b"]
        assert await bash(suite, "cat outputs/a; rm outputs/b") == []
        assert await bash(suite, "echo 2 > outputs/a") == ["a"]
        assert await bash(suite, "mv outputs/a outputs/c") == ["c"]
        names = [artifact.name for artifact in await artifacts(suite, "write_file", path="outputs/w.md", content="x")]
        assert names == ["w.md"]
        assert await artifacts(suite, "read_file", path="outputs/w.md") == []


async def test_a_failed_or_timed_out_command_still_publishes_its_files(serve: Serve) -> None:
    async with serve() as suite:
        assert await bash(suite, "echo 1 > outputs/a; exit 3") == ["a"]
        assert await bash(suite, "echo 1 > outputs/b; sleep 1015.5", timeout_ms=3000) == ["b"]


async def test_links_pipes_and_hidden_files_are_not_published(serve: Serve, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    command = (
        f"cd outputs; ln -s {tmp_path}/secret link; mkfifo pipe; touch .x; mkdir .d; touch .d/y; ln -s .. up; touch z"
    )
    async with serve() as suite:
        assert await bash(suite, command) == ["z"]


async def test_overlapping_calls_publish_a_file_once(serve: Serve) -> None:
    async with serve() as suite:
        both = await asyncio.gather(
            bash(suite, "sleep 0.2; echo 1 > outputs/a; sleep 0.2"),
            bash(suite, "sleep 0.4; echo 1 > outputs/b; sleep 0.3"),
        )
        assert sorted(both[0] + both[1]) == ["a", "b"]
        assert await bash(suite, "true") == []


async def test_artifacts_above_the_limit_are_omitted(serve: Serve) -> None:
    async with serve() as suite:
        assert len(await bash(suite, "touch outputs/{1..200}")) == ARTIFACTS_MAX


async def test_a_call_without_its_outputs_folder_still_returns_its_result(serve: Serve) -> None:
    async with serve() as suite:
        assert await bash(suite, "rm -r outputs; ln -s /etc outputs") == []
        assert await bash(suite, "rm outputs; echo file > outputs") == []
        assert await bash(suite, "rm outputs; mkdir outputs; touch outputs/a") == ["a"]


async def test_cancelling_a_call_discards_its_file_watch(serve: Serve) -> None:
    async with serve() as suite:
        async with reading(suite.call("_bash_", '{"command": "echo 1 > outputs/a; echo up; sleep 1016.5"}')) as deltas:
            await anext(deltas)
        while await bash(suite, "true"):  # as long as the call that was left is being ended
            pass
        assert await bash(suite, "echo 1 > outputs/b") == ["b"]


async def test_a_command_that_fills_the_workspace_gets_an_error_and_can_delete(serve: Serve) -> None:
    async with serve(workspace_bytes_max=1_000_000) as suite:
        _, filling = await suite.execute("_bash_", '{"command": "head -c 5000000 /dev/zero > a; ls -s a"}')
        _, full = await suite.execute("_bash_", '{"command": "head -c 5000000 /dev/zero > b; stat -c %s b"}')
        _, deleting = await suite.execute("_bash_", '{"command": "rm a b; echo done"}')
        _, again = await suite.execute("_bash_", '{"command": "head -c 5000 /dev/zero > b; stat -c %s b"}')
    assert filling.result.endswith("of 20000 files are used; nothing can be written until files are deleted]")
    assert "[the workspace is full: 10" in filling.result
    assert "\n0\n" in full.result
    assert (deleting.result, again.result) == ("done\n", "5000\n")


LONG = '{"command": "seq 100000; echo end"}'
WHOLE = "".join(f"{number}\n" for number in range(1, 100_001)) + "end\n"


async def test_a_long_result_is_cut_and_names_the_file_with_the_full_text(serve: Serve) -> None:
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


async def test_the_full_result_is_published_before_the_cut_one(serve: Serve) -> None:
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


async def test_an_unwritable_outputs_folder_loses_only_the_full_text(serve: Serve) -> None:
    async with serve() as suite:
        await suite.execute("write_file", '{"path": "outputs/results", "content": "in the way"}')
        _, outcome = await suite.execute("_bash_", LONG)
    assert outcome.ok
    assert "the whole could not be kept" in outcome.result


async def test_a_long_failure_message_is_bounded(serve: Serve) -> None:
    async with serve() as suite:
        _, outcome = await suite.execute("read_file", json.dumps({"path": "x" * 100_000}))
        _, violation = await suite.execute("read_file", json.dumps({"path": ["x" * 100_000]}))
    assert not outcome.ok
    assert len(outcome.result) == RESULT_CHARS_MAX
    assert len(violation.result) < 1000


@given(st.integers(0, 3 * RESULT_CHARS_MAX), st.sampled_from(["", "outputs/results/tool-01234567.txt"]))
def test_only_results_above_the_limit_are_shortened(length: int, path: str) -> None:
    text = "x" * length
    assert len(shorten_result(text, path)) == min(length, RESULT_CHARS_MAX)
    assert (shorten_result(text, path) == text) == (length <= RESULT_CHARS_MAX)
    assert (path in shorten_result(text, path)) == (length > RESULT_CHARS_MAX or not path)
