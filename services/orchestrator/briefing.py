"""What the system messages of a run are made from: found out at its start, and the same to its end."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from headrace.v1 import memory_pb2, tools_pb2
from services.orchestrator import prompts
from services.orchestrator.definition import StageSettings
from services.orchestrator.outset import Outset
from services.orchestrator.peers import UNARY_TIMEOUT_S, Peers, peer_errors
from services.orchestrator.run import Run
from services.runtime.rpc.call_ids import forwarded

WITHOUT_TOOLS = frozenset({"plan", "summary"})
"""Stages whose model calls no ordinary tool, so that it is told nothing of how to use them."""


@dataclass(frozen=True, slots=True)
class Brief:
    """What a prompt may refer to. Shared by the scopes of a run."""

    values: Mapping[str, str]
    """Of the placeholders that stay the same for the run."""

    guidance: tuple[str, ...] = ()
    """For a model with tools, behind its prompt: hints, skills."""

    now: datetime = field(default_factory=lambda: datetime.now(UTC))

    def system(self, settings: StageSettings, values: Mapping[str, str]) -> str:
        """The system message of a stage; `values` are of the placeholders that only it has."""
        parts = [prompts.fill(settings.system_prompt, {**self.values, **values})]
        if settings.stage not in WITHOUT_TOOLS:
            parts += self.guidance
        return prompts.with_time("\n\n".join(parts), self.now)


async def brief(run: Run, peers: Peers, found: Outset) -> Brief:
    """What the run's own prompts are filled with."""
    now = datetime.now(UTC)
    names = "\n".join(reference.name for reference in run.query.references)
    values = {
        "date": f"{now:%Y-%m-%d}",
        "query": run.query.message,
        "tools": _listed(found.tools),
        "files": names,
        "file_names": names,
    }
    if any(prompts.uses(settings.system_prompt, "history_dialogue") for settings in run.agent.stages):
        values["history_dialogue"] = await _dialogue(run, peers)
    return Brief(values, tuple(text for text in (_hints(found.tools), found.skills) if text), now)


def of_subagent(task: str, tools: Sequence[tools_pb2.Tool]) -> Brief:
    """What a sub-agent's prompts are filled with: it knows of nothing but its task."""
    now = datetime.now(UTC)
    hints = _hints(tools)
    return Brief({"date": f"{now:%Y-%m-%d}", "query": task, "tools": _listed(tools)}, (hints,) if hints else (), now)


def _listed(tools: Iterable[tools_pb2.Tool]) -> str:
    return "\n".join(f"- {tool.name}: {tool.description}" for tool in tools)


def _hints(tools: Iterable[tools_pb2.Tool]) -> str:
    hints = [f"- {tool.name}: {tool.after_call_hint}" for tool in tools if tool.after_call_hint]
    return "After calling a tool:\n" + "\n".join(hints) if hints else ""


async def _dialogue(run: Run, peers: Peers) -> str:
    """What was said before this run, as text."""
    with peer_errors():
        context = await peers.memory.LoadContext(
            memory_pb2.LoadContextRequest(chat_id=run.chat_id, run_id=run.id, pending_query=run.pending_query),
            timeout=UNARY_TIMEOUT_S,
            metadata=forwarded(),
        )
    spoken = [message for message in context.messages[:-1] if message.role in ("user", "assistant")]
    texts = [(message.role, "".join(part.text for part in message.content)) for message in spoken]
    return "\n".join(f"{role}: {text}" for role, text in texts if text)
