"""Long chats before each provider, with uploads, tool runs, two users, compactions, and processes that are killed: each
request is one that providers take, nothing leaves a model's view unsaid, and what was planted at the beginning is known
in the end.
"""

import asyncio
import json
import re
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from services.runtime.tokens.count import count_text
from tests.judges.models.conversations import PROVIDERS
from tests.judges.models.judging import Judge
from tests.judges.models.long.playing import LongChat, LongChats, prepared
from tests.judges.models.long.script import FACTS, Fact, Question, write_questions
from tests.judges.models.long.shown import Line, View, find_texts, list_said

NUMBER = re.compile(r"Question (\d+)\.")
TIMEOUT_S = 3600.0
KNOWN_SHARE = 0.95
RATIOS = (0.92, 1.15)
"""Of a receipt's tokens to our own count, which lacks the form of tools."""

ENCODING = "o200k_base"
BEGINNING = 60
"""Characters of a pinned item that are compared: a long one is shortened."""


@dataclass(frozen=True)
class Size:
    questions: int
    facts: Sequence[Fact]
    providers: Sequence[str]
    window: int
    form: str
    crashes: Mapping[int, str]
    compact_at: int
    compactions: int
    """The least that there are in each chat."""


SIZES = {
    "short": Size(44, FACTS[::2], ["open"], 10_000, "--one-process", {20: "suite"}, 24, 2),
    "long": Size(200, FACTS, [*PROVIDERS], 20_000, "--split", {70: "orchestrator", 120: "memory"}, 100, 3),
}


@dataclass(frozen=True)
class Played:
    size: Size
    questions: Sequence[Question]
    chats: LongChats


@pytest_asyncio.fixture(
    scope="module", loop_scope="session", params=["short", pytest.param("long", marks=pytest.mark.nightly)]
)
async def played(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Played]:
    size = SIZES[request.param]
    questions = write_questions(size.questions, size.facts, size.crashes)
    folder: Path = tmp_path_factory.mktemp("long")
    async with asyncio.timeout(TIMEOUT_S), prepared(folder, questions, size.providers, size.window, size.form) as chats:
        await chats.play(questions, size.crashes, size.compact_at)
        yield Played(size, questions, chats)


pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_providers_take_each_request(
    played: Played, mistral: Judge, older_mistral: Judge, harmony: Judge
) -> None:
    failing = [question for question in played.questions if question.kind == "fail"]
    assert len(played.chats.refused) == len(failing) * len(played.chats.chats)
    for provider, judges in {"mistral": [mistral, older_mistral], "open": [harmony]}.items():
        for judge in judges if provider in played.chats.chats else ():
            verdicts = await judge.judge([asked.body for asked in played.chats.chats[provider].asked])
            said = [text for verdict in verdicts for name, text in verdict.items() if name != "prompt" and text]
            assert said == []


async def test_nothing_leaves_the_view_without_a_summary_a_short_form_or_a_notice(played: Played) -> None:
    lost: list[tuple[str, int, list[tuple[int, str]]]] = []
    for provider, chat in played.chats.chats.items():
        log = chat.read_log()
        for number, asked in enumerate(chat.asked):
            before = [line for line in log if line["updatedAt"] < asked.at_ms - 1]
            if not asked.view.asks_for_summary and (missing := asked.view.find_lost(before)):
                lost.append((provider, number, missing))
    assert lost == []


async def test_what_was_planted_is_known_in_the_end(played: Played) -> None:
    for chat in played.chats.chats.values():
        wanted = [question for question in played.questions if question.is_last]
        unknown = [question.text for question in wanted if not knows(chat, question)]
        assert len(unknown) <= (1 - KNOWN_SHARE) * len(wanted), (chat.provider, unknown)


def knows(chat: LongChat, question: Question) -> bool:
    """Return whether the request has the fact, or the one search that it offers finds it."""
    assert question.fact is not None
    first, second = (asked for asked in chat.asked if is_about(asked.view, question))
    if question.fact.value in first.view.text:
        return True
    offered = "read_history" in json.dumps(first.body.get("tools") or first.body.get("toolConfig"))
    read = second.view.text.rpartition(question.fact.question)[2]
    return offered and question.fact.value in read


def is_about(view: View, question: Question) -> bool:
    return not view.asks_for_summary and max(map(int, NUMBER.findall(view.text))) == question.number


async def test_receipts_add_up_with_the_requests_before_and_after(played: Played) -> None:
    for chat in played.chats.chats.values():
        log = chat.read_log()
        made = [line for line in log if line["_type"] == "compact_boundary"]
        assert len(made) >= played.size.compactions
        for boundary in made:
            if boundary["compactMetadata"]["strategy"] != "failed":
                check_receipt(chat, log, boundary)


def check_receipt(chat: LongChat, log: Sequence[Line], boundary: Line) -> None:
    """Compare a compaction's figures with the requests before and after it, and with the summary that they show."""
    made, receipt = boundary["compactMetadata"], boundary["compactMetadata"]["receipt"]
    (summary,) = [line for line in log if line["_type"] == "compact_summary" and line["parentUuid"] == boundary["uuid"]]
    lines = (receipt["firstLine"], receipt["lastLine"])
    asked = [one for one in chat.asked if not one.view.asks_for_summary]
    after = next((one for one in asked if lines in one.view.ranges), None)
    if after is None:
        return  # another compaction came before the next question
    figures = f"{chat.provider} {made['trigger']} {lines} {made}"[:400]
    shown = after.view.text
    assert summary["content"] in shown, figures
    assert receipt["seenTokens"] <= receipt["coveredTokens"]
    for item in receipt["pinned"]:
        text = item.partition(": ")[2]
        assert text[:BEGINNING] in shown or item.startswith("Pinned by the user"), item
    begun = [n for n in list_beginnings(log, boundary) if counts_fit(log, boundary, n)]
    assert begun, figures
    begun_ms = log[begun[0] - 1]["updatedAt"] + 0.5
    before = [one for one in asked if one.at_ms < begun_ms][-1]
    tokens_before = count_texts(before.body) + count_said(log, before.at_ms, begun_ms)
    assert RATIOS[0] < made["preTokens"] / tokens_before < RATIOS[1], (tokens_before, figures)
    tokens_after = count_texts(after.body) - count_said(log, begun_ms, after.at_ms)
    assert RATIOS[0] < made["postTokens"] / tokens_after < RATIOS[1], (tokens_after, figures)
    if boundary.get("runId"):  # between runs the last one is shortened, too
        left = made["preTokens"] - receipt["coveredTokens"] + count_text(summary["content"], ENCODING)
        assert abs(left - made["postTokens"]) < 0.02 * made["preTokens"], figures


def list_beginnings(log: Sequence[Line], boundary: Line) -> list[int]:
    """List the lines behind which a compaction may have begun: of one between runs, others may have begun since."""
    if boundary.get("runId"):
        return [boundary["_n"] - 1]
    return [line["_n"] for line in log[: boundary["_n"]] if line["_type"] == "run"][:-4:-1]


def counts_fit(log: Sequence[Line], boundary: Line, begun: int) -> bool:
    """Return whether the messages of a receipt, kept and in all, are those of the log up to a line."""
    receipt = boundary["compactMetadata"]["receipt"]
    former = max(
        (line["compactMetadata"]["receipt"]["lastLine"] for line in log if is_former(line, boundary)), default=0
    )
    kept = count_messages(log[receipt["lastLine"] : begun])
    everything = count_messages(log[former:begun])
    # The question that is being answered stays, also where the summary stands for it.
    extra = receipt["keptMessages"] - kept, receipt["keptMessages"] + receipt["replacedMessages"] - everything
    return all(count in (0, 1) for count in extra)


def is_former(line: Line, boundary: Line) -> bool:
    return (
        line["_type"] == "compact_boundary"
        and line["_n"] < boundary["_n"]
        and "lastLine" in line["compactMetadata"]["receipt"]
    )


def count_messages(lines: Iterable[Line]) -> int:
    """Count the messages that lines have, the pieces of an answer as one."""
    said: set[Any] = set()
    for line in lines:
        if [*list_said(line)] and line["_type"] == "query":
            said.add(line["_n"])
        for index, message in enumerate(line.get("messages", [])):
            said.add(message.get("_msgId") or (line["_n"], index))
    return len(said)


def count_said(log: Sequence[Line], after_ms: float, before_ms: float) -> int:
    """Count the tokens that were said in a time."""
    came = [line for line in log if after_ms < line["updatedAt"] < before_ms]
    return count_texts([text for line in came for text, _ in list_said(line)])


def count_texts(said: Any) -> int:
    return count_text("\n".join(find_texts(said)), ENCODING)
