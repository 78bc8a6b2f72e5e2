"""Fills a run's prompts with values determined at its start, or when a stage begins."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence

from headrace.v1 import memory_pb2, tools_pb2
from services.orchestrator.agents import prompts
from services.orchestrator.agents.definition import StageSettings
from services.orchestrator.peers.stubs import Peers
from services.orchestrator.peers.workspace_files import list_workspace
from services.orchestrator.run.run import Run
from services.orchestrator.run.scope import Scope
from services.orchestrator.run.scope_parts import PromptContext
from services.orchestrator.setup.run_setup import RunSetup
from services.runtime.clock import now_utc

NAMES = ("file_names", "files")

FILES_SHOWN_MAX = 200
"""Files listed by name; further ones are only counted."""

SKILLS = "skills/"
"""Folder of the skills' own files, which were not created in the chat."""


async def load_file_values(scope: Scope, peers: Peers, settings: StageSettings) -> dict[str, str]:
    """Return the placeholders' values; none for a prompt without them, or one already in the log."""
    if not any(prompts.uses_placeholder(settings.system_prompt, name) for name in NAMES):
        return {}
    run = scope.run
    listed = await list_workspace(peers, run.chat_id)
    if listed is None:
        known = (tools_pb2.FileInfo(path=upload.path) for upload in run.main.attention.uploads)
        listed = tools_pb2.ListFilesResponse(files=known)
    files = [file for file in listed.files if not file.path.startswith((SKILLS, "."))]
    # References outside the chat have a name but no file here.
    elsewhere = [reference.name for reference in run.query.references if reference.name and not reference.meta]
    return {
        "file_names": _join([*map(_quote, (file.path for file in files)), *map(_quote, elsewhere)]),
        "files": _join([*map(_describe, files), *map(_quote, elsewhere)]),
    }


def _describe(file: tools_pb2.FileInfo) -> str:
    facts = ", ".join(fact for fact in (file.mime_type, f"{file.size_bytes} bytes" if file.size_bytes else "") if fact)
    return f"{_quote(file.path)} ({facts})" if facts else _quote(file.path)


def _quote(name: str) -> str:
    """Keep a name on one line, because it may contain any text."""
    return name if name.isprintable() else json.dumps(name, ensure_ascii=False)


def _join(lines: Iterable[str]) -> str:
    shown = [*lines]
    more = len(shown) - FILES_SHOWN_MAX
    return "\n".join([*shown[:FILES_SHOWN_MAX], f"… and {more} more"] if more > 0 else shown)


async def make_prompt_context(run: Run, peers: Peers, found: RunSetup) -> PromptContext:
    values = {
        "date": f"{now_utc():%Y-%m-%d}",
        "query": run.query.message,
        "tools": _list_tools(found.tools),
        **await load_file_values(run.main, peers, run.agent.primary),
    }
    if any(prompts.uses_placeholder(settings.system_prompt, "history_dialogue") for settings in run.agent.stages):
        values["history_dialogue"] = await _load_dialogue(run, peers)
    guidance = tuple(text for text in (_list_hints(found.tools), found.skills) if text)
    return PromptContext(values, guidance, has_examples=True)


async def make_subagent_context(
    scope: Scope, peers: Peers, task: str, tools: Sequence[tools_pb2.Tool]
) -> PromptContext:
    hints = _list_hints(tools)
    values = {"date": f"{now_utc():%Y-%m-%d}", "query": task, "tools": _list_tools(tools)}
    values |= await load_file_values(scope, peers, scope.agent.primary)
    return PromptContext(values, (hints,) if hints else ())


def _list_tools(tools: Iterable[tools_pb2.Tool]) -> str:
    return "\n".join(f"- {tool.name}: {tool.description}" for tool in tools)


def _list_hints(tools: Iterable[tools_pb2.Tool]) -> str:
    hints = [f"- {tool.name}: {tool.after_call_hint}" for tool in tools if tool.after_call_hint]
    return "After calling a tool:\n" + "\n".join(hints) if hints else ""


async def _load_dialogue(run: Run, peers: Peers) -> str:
    request = memory_pb2.LoadContextRequest(chat_id=run.chat_id, run_id=run.id, pending_query=run.pending_query)
    context = await peers.memory.LoadContext(request)
    spoken = [message for message in context.messages[:-1] if message.role in ("user", "assistant")]
    texts = [(message.role, "".join(part.text for part in message.content)) for message in spoken]
    return "\n".join(f"{role}: {text}" for role, text in texts if text)
