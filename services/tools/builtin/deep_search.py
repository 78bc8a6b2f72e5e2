"""deep_search: split the question, search in parallel, judge whether more is needed, stream a report."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import aclosing

from headrace.v1 import tools_pb2
from services.tools.errors import ToolFailed
from services.tools.research import prompts
from services.tools.research.findings import Found
from services.tools.research.search_round import Gathered, gather
from services.tools.toolkit.model_client import Asker, ModelFailed
from services.tools.toolkit.tool import Call, Tool, output, result
from services.tools.web.search import NOT_CONFIGURED
from services.tools.web.web import source

LOOPS, LOOPS_MAX = 2, 5

DOCUMENT_CHARS_SHOWN = 300
"""Of each document, where the report could not be written."""

PARAMETERS = {
    "type": "object",
    "properties": {
        "query": {"type": "string", "minLength": 1, "maxLength": 4000, "description": "The question to answer"},
        "maxLoops": {
            "type": "integer",
            "minimum": 1,
            "maximum": LOOPS_MAX,
            "description": f"Most rounds of searching; without it {LOOPS}",
        },
    },
    "required": ["query"],
    "additionalProperties": False,
}


async def execute(call: Call) -> AsyncGenerator[tools_pb2.ToolDelta]:
    if not call.web.search.url:
        raise ToolFailed(NOT_CONFIGURED)
    asker, found, said = Asker(call), Found(), list[str]()
    try:
        async with aclosing(_rounds(call, asker, found)) as deltas:
            async for delta in deltas:
                yield delta
        async with aclosing(asker.stream(*_report(call, found))) as texts:
            async for text in texts:
                said.append(text)
                yield output("text", text)
        yield output("text", sources := _end(asker, found))
        outcome = result("".join(said) + sources)
    except ModelFailed as failure:
        outcome = result(_without_report(str(failure), "".join(said), found), ok=False)
    if asker.usage.model_calls:
        yield asker.delta()
    yield outcome


async def _rounds(call: Call, asker: Asker, found: Found) -> AsyncGenerator[tools_pb2.ToolDelta]:
    """Search until it is enough; the last model call of the budget is kept for the report."""
    question, asked = call.arguments["query"], set[str]()
    queries = [question[: prompts.QUERY_CHARS_MAX]]
    if asker.calls_left > 1:
        queries = prompts.parse_queries(await _short(asker, prompts.split(question)), question)
    for loop in range(int(call.arguments.get("maxLoops", LOOPS))):
        if loop > 0:
            if asker.calls_left <= 1:
                return
            queries = prompts.parse_verdict(await _short(asker, prompts.judge(question, found)), asked)
        if not queries:
            return
        asked.update(queries)
        yield output("progress", "".join(f"searching: {query}\n" for query in queries))
        for gathered in await _gathered(call, asker, queries):
            if gathered.failure:
                found.failures.append(gathered.failure)
            for document in found.new(gathered.query, gathered.hits, gathered.pages):
                yield source(document.number, call.request.tool_call_id, document.title, document.url)


async def _gathered(call: Call, asker: Asker, queries: list[str]) -> list[Gathered]:
    try:
        async with asyncio.timeout(asker.left_s):
            return await gather(call.web, queries)
    except TimeoutError as error:
        raise ModelFailed("the time for this call is over") from error


async def _short(asker: Asker, prompt: prompts.Prompt) -> str:
    """The answer; empty when there is none: searching for the question itself is better than not searching."""
    try:
        return await asker.ask(prompt.system, prompt.text)
    except ModelFailed:
        return ""


def _report(call: Call, found: Found) -> tuple[str, str]:
    if not found.documents:
        why = found.failures[0] if found.failures else "nothing was found"
        raise ModelFailed(f"there is nothing to write a report from: {why}")
    prompt = prompts.report(call.arguments["query"], found)
    return prompt.system, prompt.text


def _end(asker: Asker, found: Found) -> str:
    cut = "\n\n[the report was cut here: the answer had its greatest length]" if asker.is_cut else ""
    lines = [f"[{document.number}] {document.title}: {document.url}" for document in found.documents]
    return f"{cut}\n\nSources:\n" + "\n".join(lines)


def _without_report(why: str, said: str, found: Found) -> str:
    """What the calling model can go on with: the beginning of the report, and the documents by their queries."""
    parts = [why]
    if said:
        parts.append(f"The report up to there:\n\n{said}")
    for query in found.queries:
        parts.append(f"Found for {query!r}:")
        documents = [document for document in found.documents if document.query == query]
        parts += [f"{document.head}\n{document.text[:DOCUMENT_CHARS_SHOWN]}" for document in documents]
    return "\n\n".join(parts)


TOOL = Tool(
    name="deep_search",
    description=(
        "Research a question on the web: it is split into searches, pages are read, and a report with sources is "
        "written. Slower and more expensive than web_search; for questions that one search does not answer."
    ),
    parameters=json.dumps(PARAMETERS),
    effect="read",
    execute=execute,
    tier="enabled",
    needs_search=True,
    asks_model=True,
)
