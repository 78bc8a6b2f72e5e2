"""Fills a run's prompts with values found once, at its start."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from headrace.v1 import memory_pb2, tools_pb2
from services.orchestrator.agents import prompts
from services.orchestrator.peers.stubs import Peers
from services.orchestrator.run.prompt_context import PromptContext
from services.orchestrator.run.run import Run
from services.orchestrator.run.scope import Scope
from services.orchestrator.setup.file_values import load_file_values
from services.orchestrator.setup.run_setup import RunSetup
from services.runtime.clock import now_utc


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
