"""The compaction that a request stands behind, and what its chat has spent: for people who look into a window."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from headrace.v1 import agent_pb2, common_pb2
from services.memory.compaction.prompt import split_content
from services.memory.compaction.receipt import read_usage, to_event
from services.memory.compaction.summary_check import split_sections
from services.memory.log.lines import CompactBoundary, Run
from services.memory.log.proto_json import load_proto
from services.runtime.usage import sum_usages

if TYPE_CHECKING:
    from headrace.v1 import memory_pb2
    from services.memory.context.context_source import AppliedCompaction
    from services.memory.context.window.token_counter import TokenCounter
    from services.memory.log.lines import Line

BEHIND = "Behind the summary"
"""Title of what compaction puts there: goal, todos, files and pinned messages."""


def add_compaction(
    response: memory_pb2.LoadContextResponse,
    lines: Iterable[Line],
    compaction: AppliedCompaction | None,
    counter: TokenCounter,
) -> None:
    """Add the last compaction of a context, and what its chat has spent; `lines` are all of the chat's."""
    if compaction is not None:
        response.compaction.CopyFrom(describe_compaction(compaction, counter))
    ended: list[common_pb2.Usage] = []
    between: list[common_pb2.Usage] = []
    for line in lines:
        if isinstance(line, Run) and line.usage:
            usage = common_pb2.Usage()
            load_proto(line.usage, usage)
            ended.append(usage)
        elif isinstance(line, CompactBoundary) and not line.run_id and (receipt := line.compact_metadata.receipt):
            between += [usage] if (usage := read_usage(receipt)) is not None else []
    if (usage := sum_usages([*ended, *between])) is not None:
        response.chat_usage.CopyFrom(usage)
    if (usage := sum_usages(between)) is not None:
        response.between_runs_usage.CopyFrom(usage)


def describe_compaction(compaction: AppliedCompaction, counter: TokenCounter) -> agent_pb2.ContextCompaction:
    metadata, receipt = compaction.boundary.compact_metadata, compaction.boundary.compact_metadata.receipt
    return agent_pb2.ContextCompaction(
        n=compaction.summary.n,
        run_id=compaction.boundary.run_id,
        trigger=metadata.trigger,
        strategy=metadata.strategy,
        pre_tokens=metadata.pre_tokens,
        post_tokens=metadata.post_tokens,
        files_included=metadata.files_included,
        receipt=None if receipt is None else to_event(receipt),
        sections=[
            agent_pb2.ContextSection(title=title, tokens=counter.to_model_tokens(counter.count_text(text)))
            for title, text in _list_sections(compaction)
        ],
        is_edited=compaction.changes.edit is not None,
        created_at=compaction.summary.updated_at,
    )


def _list_sections(compaction: AppliedCompaction) -> Iterator[tuple[str, str]]:
    before, summary, behind = split_content(compaction.changes.apply_to(compaction.summary.content))
    first, *sections = split_sections(summary)
    beginning = "\n\n".join(filter(None, [before, first[1]]))
    if beginning:
        yield "", beginning
    yield from sections
    if behind:
        yield BEHIND, behind
