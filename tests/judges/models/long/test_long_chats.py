"""Long chats with each provider, with uploads, tool runs, two users, compactions, and killed processes: providers
accept each request, nothing leaves a model's view without a notice, and facts from the beginning are known at the end.
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


async def test_providers_accept_each_request(
    played: Played, mistral: Judge, older_mistral: Judge, harmony: Judge
) -> None:
    failing = [question for question in played.questions if question.kind == "fail"]
    assert len(played.chats.refused) == len(failing) * len(played.chats.chats)
    for provider, judges in {"mistral": [mistral, older_mistral], "open": [harmony]}.items():
        for judge in judges if provider in played.chats.chats else ():
            verdicts = await judge.judge([request.body for request in played.chats.chats[provider].asked])
            refusals = [text for verdict in verdicts for name, text in verdict.items() if name != "prompt" and text]
            assert refusals == []


async def test_every_line_is_shown_summarised_shortened_or_in_a_notice(played: Played) -> None:
    lost: list[tuple[str, int, list[tuple[int, str]]]] = []
    for provider, chat in played.chats.chats.items():
        log = chat.read_log()
        for number, request in enumerate(chat.asked):
            before = [line for line in log if line["updatedAt"] < request.at_ms - 1]
            if not request.view.asks_for_summary and (missing := request.view.find_lost(before)):
                lost.append((provider, number, missing))
    assert lost == []


async def test_facts_planted_early_are_known_at_the_end(played: Played) -> None:
    for chat in played.chats.chats.values():
        wanted = [question for question in played.questions if question.is_last]
        unknown = [question.text for question in wanted if not knows(chat, question)]
        assert len(unknown) <= (1 - KNOWN_SHARE) * len(wanted), (chat.provider, unknown)


def knows(chat: LongChat, question: Question) -> bool:
    """Return whether the request has the fact, or the one search that it offers finds it."""
    assert question.fact is not None
    first, second = (request for request in chat.asked if is_about(request.view, question))
    if question.fact.value in first.view.text:
        return True
    offered = "read_history" in json.dumps(first.body.get("tools") or first.body.get("toolConfig"))
    read = second.view.text.rpartition(question.fact.question)[2]
    return offered and question.fact.value in read


def is_about(view: View, question: Question) -> bool:
    return not view.asks_for_summary and max(map(int, NUMBER.findall(view.text))) == question.number


async def test_compaction_receipts_match_the_requests_before_and_after(played: Played) -> None:
    for chat in played.chats.chats.values():
        log = chat.read_log()
        boundaries = [line for line in log if line["_type"] == "compact_boundary"]
        assert len(boundaries) >= played.size.compactions
        for boundary in boundaries:
            if boundary["compactMetadata"]["strategy"] != "failed":
                check_receipt(chat, log, boundary)


def check_receipt(chat: LongChat, log: Sequence[Line], boundary: Line) -> None:
    """Compare a compaction's figures with the requests before and after it, and with the summary that they show."""
    metadata, receipt = boundary["compactMetadata"], boundary["compactMetadata"]["receipt"]
    (summary,) = [line for line in log if line["_type"] == "compact_summary" and line["parentUuid"] == boundary["uuid"]]
    lines = (receipt["firstLine"], receipt["lastLine"])
    requests = [request for request in chat.asked if not request.view.asks_for_summary]
    after = next((request for request in requests if lines in request.view.ranges), None)
    if after is None:
        return  # another compaction came before the next question
    figures = f"{chat.provider} {metadata['trigger']} {lines} {metadata}"[:400]
    view_text = after.view.text
    assert summary["content"] in view_text, figures
    assert receipt["seenTokens"] <= receipt["coveredTokens"]
    for item in receipt["pinned"]:
        text = item.partition(": ")[2]
        assert text[:BEGINNING] in view_text or item.startswith("Pinned by the user"), item
    start_lines = [n for n in list_beginnings(log, boundary) if counts_fit(log, boundary, n)]
    assert start_lines, figures
    begun_ms = log[start_lines[0] - 1]["updatedAt"] + 0.5
    before = [request for request in requests if request.at_ms < begun_ms][-1]
    tokens_before = count_texts(before.body) + count_said(log, before.at_ms, begun_ms)
    assert RATIOS[0] < metadata["preTokens"] / tokens_before < RATIOS[1], (tokens_before, figures)
    tokens_after = count_texts(after.body) - count_said(log, begun_ms, after.at_ms)
    assert RATIOS[0] < metadata["postTokens"] / tokens_after < RATIOS[1], (tokens_after, figures)
    if boundary.get("runId"):  # between runs the last one is shortened, too
        remaining_tokens = metadata["preTokens"] - receipt["coveredTokens"] + count_text(summary["content"], ENCODING)
        assert abs(remaining_tokens - metadata["postTokens"]) < 0.02 * metadata["preTokens"], figures


def list_beginnings(log: Sequence[Line], boundary: Line) -> list[int]:
    """List the lines after which a compaction may have begun: for one between runs, other runs may have begun since."""
    if boundary.get("runId"):
        return [boundary["_n"] - 1]
    return [line["_n"] for line in log[: boundary["_n"]] if line["_type"] == "run"][:-4:-1]


def counts_fit(log: Sequence[Line], boundary: Line, start_line: int) -> bool:
    """Return whether a receipt's numbers of kept and of all messages match the log up to a line."""
    receipt = boundary["compactMetadata"]["receipt"]
    former = max(
        (line["compactMetadata"]["receipt"]["lastLine"] for line in log if is_former(line, boundary)), default=0
    )
    kept_messages = count_messages(log[receipt["lastLine"] : start_line])
    everything = count_messages(log[former:start_line])
    # The question that is being answered stays, also where the summary stands for it.
    extra = receipt["keptMessages"] - kept_messages, receipt["keptMessages"] + receipt["replacedMessages"] - everything
    return all(count in (0, 1) for count in extra)


def is_former(line: Line, boundary: Line) -> bool:
    return (
        line["_type"] == "compact_boundary"
        and line["_n"] < boundary["_n"]
        and "lastLine" in line["compactMetadata"]["receipt"]
    )


def count_messages(lines: Iterable[Line]) -> int:
    """Count the messages of lines; the pieces of an answer count as one."""
    message_ids: set[Any] = set()
    for line in lines:
        if [*list_said(line)] and line["_type"] == "query":
            message_ids.add(line["_n"])
        for index, message in enumerate(line.get("messages", [])):
            message_ids.add(message.get("_msgId") or (line["_n"], index))
    return len(message_ids)


def count_said(log: Sequence[Line], after_ms: float, before_ms: float) -> int:
    """Count the tokens of the texts of a period."""
    lines = [line for line in log if after_ms < line["updatedAt"] < before_ms]
    return count_texts([text for line in lines for text, _ in list_said(line)])


def count_texts(value: Any) -> int:
    return count_text("\n".join(find_texts(value)), ENCODING)
