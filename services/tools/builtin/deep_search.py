from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import aclosing

from headrace.v1 import tools_pb2
from services.tools.errors import ToolFailed
from services.tools.research import prompts
from services.tools.research.findings import Findings
from services.tools.research.search_round import search_all
from services.tools.toolkit.context import ToolContext
from services.tools.toolkit.model_client import ModelClient, ModelFailed
from services.tools.toolkit.tool import Tool, make_output, make_result
from services.tools.web.search import NOT_CONFIGURED
from services.tools.web.web import make_source

LOOPS, LOOPS_MAX = 2, 5

DOCUMENT_CHARS_SHOWN = 300

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


async def execute(context: ToolContext) -> AsyncGenerator[tools_pb2.ToolDelta]:
    if not context.web.search.url:
        raise ToolFailed(NOT_CONFIGURED)
    model, findings, pieces = ModelClient(context), Findings(), list[str]()
    try:
        async with aclosing(_search_rounds(context, model, findings)) as deltas:
            async for delta in deltas:
                yield delta
        if not findings.documents:
            why = findings.failures[0] if findings.failures else "nothing was found"
            raise ModelFailed(f"there is nothing to write a report from: {why}")
        prompt = prompts.make_report_prompt(context.arguments["query"], findings)
        async with aclosing(model.stream_answer(prompt.system, prompt.text)) as texts:
            async for text in texts:
                pieces.append(text)
                yield make_output("text", text)
        yield make_output("text", sources := _format_sources(model, findings))
        outcome = make_result("".join(pieces) + sources)
    except ModelFailed as failure:
        outcome = make_result(_format_partial_result(str(failure), "".join(pieces), findings), ok=False)
    if model.usage.model_calls:
        yield model.make_usage()
    yield outcome


async def _search_rounds(
    context: ToolContext, model: ModelClient, findings: Findings
) -> AsyncGenerator[tools_pb2.ToolDelta]:
    # The last model call of the budget is kept for the report.
    question, past_queries = context.arguments["query"], set[str]()
    queries = [question[: prompts.QUERY_CHARS_MAX]]
    if model.calls_left > 1:
        queries = prompts.parse_queries(await _ask_or_empty(model, prompts.make_split_prompt(question)), question)
    for loop in range(int(context.arguments.get("maxLoops", LOOPS))):
        if loop > 0:
            if model.calls_left <= 1:
                return
            queries = prompts.parse_verdict(
                await _ask_or_empty(model, prompts.make_judge_prompt(question, findings)), past_queries
            )
        if not queries:
            return
        past_queries.update(queries)
        # Told as it is spent: a call that is cancelled says nothing more.
        if model.usage.model_calls:
            yield model.make_usage()
        yield make_output("progress", "".join(f"searching: {query}\n" for query in queries))
        try:
            async with asyncio.timeout(model.left_s):
                results = await search_all(context.web, queries)
        except TimeoutError as error:
            raise ModelFailed("the time for this call is over") from error
        for result in results:
            if result.failure:
                findings.failures.append(result.failure)
            for document in findings.add_hits(result.query, result.hits, result.pages):
                yield make_source(document.number, context.request.tool_call_id, document.title, document.url)


async def _ask_or_empty(model: ModelClient, prompt: prompts.Prompt) -> str:
    # A search for the question itself is better than none, so a failure gives an empty answer.
    try:
        return await model.ask_briefly(prompt.system, prompt.text)
    except ModelFailed:
        return ""


def _format_sources(model: ModelClient, findings: Findings) -> str:
    cut = "\n\n[the report was cut here: the answer had its greatest length]" if model.is_cut else ""
    lines = [f"[{document.number}] {document.title}: {document.url}" for document in findings.documents]
    return f"{cut}\n\nSources:\n" + "\n".join(lines)


def _format_partial_result(why: str, pieces: str, findings: Findings) -> str:
    parts = [why]
    if pieces:
        parts.append(f"The report up to there:\n\n{pieces}")
    for query in findings.queries:
        parts.append(f"Found for {query!r}:")
        documents = [document for document in findings.documents if document.query == query]
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
    needs=frozenset({"search", "model"}),
)
