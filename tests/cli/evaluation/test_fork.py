"""headrace fork in a process of its own: it continues a golden run from a step, against a scripted orchestrator."""

from pathlib import Path

from headrace.v1.agent_pb2 import AgentTrial
from tests.golden.__main__ import CASSETTES
from tests.support.command_line import run
from tests.support.facade.scripted import Script, answering, suite

TOOL = str(CASSETTES / "tool.cassette")


async def test_a_fork_sends_the_messages_before_its_step_with_the_replaced_result(tmp_path: Path) -> None:
    options = (
        "--from",
        "2",
        "--agent",
        "other",
        "--agent-version",
        "3",
        "--tool-result",
        "mock_city_weather=It is hot.",
    )
    async with suite(tmp_path, Script(query=answering("Stay inside."))) as facade:
        code, out, complaints = await run("fork", *options, TOOL, url=facade.url)
        (query,) = facade.script.requests
    assert (code, complaints) == (0, b"")
    assert (query.message, query.agent_key, query.agent_version) == ("What is the weather in Paris today?", "other", 3)
    call_message, result = query.progress
    assert (call_message.role, call_message.tool_calls[0].name) == ("assistant", "mock_city_weather")
    assert (result.role, result.tool_call_id, result.content) == ("tool", call_message.tool_calls[0].id, "It is hot.")
    shown = out.decode()
    assert "The weather in Paris" in shown
    assert "Stay inside." in shown


async def test_a_fork_may_try_another_model_or_prompt(tmp_path: Path) -> None:
    (tmp_path / "curt.txt").write_text("Be curt.\n")
    trials = {
        ("--model", "other/big"): {"provider_key": "other", "model": "big"},
        ("--model", "big"): {"model": "big"},
        ("--prompt", str(tmp_path / "curt.txt")): {"system_prompt": "Be curt."},
    }
    async with suite(tmp_path, Script(query=answering("So."))) as facade:
        for options in trials:
            assert (await run("fork", "--from", "1", *options, TOOL, url=facade.url))[0] == 0
        assert [query.trial for query in facade.script.requests] == [AgentTrial(**trial) for trial in trials.values()]


async def test_a_fork_from_the_first_step_has_no_progress(tmp_path: Path) -> None:
    async with suite(tmp_path, Script(query=answering("So."))) as facade:
        code, _, _ = await run("fork", "--from", "1", TOOL, url=facade.url)
        (query,) = facade.script.requests
    assert code == 0
    assert (query.agent_key, len(query.progress), len(query.history)) == ("assistant", 0, 0)


async def test_an_invalid_fork_is_refused_with_the_reason() -> None:
    wrong = {
        ("--from", "3", TOOL): "there is no step 3 of the run itself: it has 2",
        ("--from", "1", str(CASSETTES / "plan.cassette")): "runs with a plan have none",
        ("--from", "2", "--tool-result", "lamp=on", TOOL): "no call 'lamp' has a result before that step",
        ("--from", "2", "--tool-result", "lamp", TOOL): "'lamp' is no CALL=TEXT",
    }
    for arguments, problem in wrong.items():
        code, _, complaints = await run("fork", *arguments, url="http://127.0.0.1:9")
        assert (code, problem in " ".join(complaints.decode().split())) == (2, True), complaints


async def test_a_file_that_is_not_a_recording_is_refused_with_its_line(tmp_path: Path) -> None:
    file = tmp_path / "deep.cassette"
    file.write_text("[" * 100_000)
    code, _, complaints = await run("fork", "--from", "1", str(file), url="http://127.0.0.1:9")
    assert (code, "line 1: no JSON" in complaints.decode()) == (2, True), complaints
