"""The requests of ordinary conversations, judged by the model makers' own libraries."""

import pytest

from tests.judges.models.conversations import CONVERSATIONS, PROVIDERS, Capture
from tests.judges.models.judging import Judge

pytestmark = pytest.mark.asyncio(loop_scope="session")


def list_refusals(verdicts: list[dict[str, str]]) -> list[str]:
    """List each version's objections to each request, with its number."""
    refusals = [(number, version, text) for number, verdict in enumerate(verdicts) for version, text in verdict.items()]
    return [f"request {number} by {version}: {text}" for number, version, text in refusals if text]


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("name", CONVERSATIONS)
async def test_every_conversation_runs_as_scripted(capture: Capture, provider: str, name: str) -> None:
    # What is expected to be refused below is refused by its judge, and has not failed on the way to it.
    assert await capture.get_requests(provider, name)


@pytest.mark.parametrize("name", CONVERSATIONS)
async def test_mistral_accepts_each_request(capture: Capture, mistral: Judge, name: str) -> None:
    verdicts = await mistral.judge(await capture.get_requests("mistral", name))
    assert list_refusals(verdicts) == []


@pytest.mark.parametrize("name", CONVERSATIONS)
async def test_mistral_before_1_11_1_accepts_each_request(capture: Capture, older_mistral: Judge, name: str) -> None:
    verdicts = await older_mistral.judge(await capture.get_requests("mistral", name))
    assert list_refusals(verdicts) == []


@pytest.mark.parametrize("name", CONVERSATIONS)
async def test_harmony_renders_each_request(capture: Capture, harmony: Judge, name: str) -> None:
    verdicts = await harmony.judge(await capture.get_requests("open", name))
    assert [verdict["error"] for verdict in verdicts] == [""] * len(verdicts)


async def test_harmony_renders_all_reasoning_of_the_current_loop(capture: Capture, harmony: Judge) -> None:
    verdicts = await harmony.judge(await capture.get_requests("open", "three_steps"))
    thoughts = [[turn for turn in (1, 2, 3) if f"Thought {turn}." in verdict["prompt"]] for verdict in verdicts]
    # Those of a loop that has its answer are the model's no more.
    assert thoughts == [[], [1], [1, 2], [1, 2, 3]] * 2


async def test_harmony_knows_the_type_of_each_parameter(capture: Capture, harmony: Judge) -> None:
    requests = [request for name in CONVERSATIONS for request in await capture.get_requests("open", name)]
    prompts = [verdict["prompt"] for verdict in await harmony.judge(requests)]
    untyped = {line.strip() for prompt in prompts for line in prompt.splitlines() if ": any," in line}
    assert untyped == set()
