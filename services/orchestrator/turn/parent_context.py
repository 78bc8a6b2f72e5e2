"""Where recap is on, a parent's context is shown again after its sub-agents' results."""

from __future__ import annotations

import msgspec

from services.orchestrator.agents import prompts
from services.orchestrator.peers.stubs import Peers
from services.orchestrator.run import session_state
from services.orchestrator.run.answers.answer import Answer
from services.orchestrator.run.scope import Scope

THOUGHT_CHARS = 200

RESULT_CHARS_MAX = 500
"""The model has the whole as the call's own result."""


class ParentContext(msgspec.Struct, rename="camel"):
    parent_id: str
    checkpoint: int
    sub_goal: str
    latest_thought: str
    depth: int


async def push(scope: Scope, parent: Scope, peers: Peers, task: str) -> None:
    if not parent.agent.memory.recap.enabled or not scope.recording.is_used_up:
        return
    kept = ParentContext(
        parent_id=parent.subagent_id or "main",
        checkpoint=parent.run.chat.checkpoint_id or 0,
        sub_goal=task[:THOUGHT_CHARS],
        latest_thought=parent.notes.last_text[:THOUGHT_CHARS],
        depth=parent.depth,
    )
    await session_state.change(scope, peers, parent_context=msgspec.json.encode(kept))


async def restore(scope: Scope, answer: Answer) -> None:
    """Show the returns; the results of all calls of `answer` are stored before."""
    returns = scope.notes.take_returns()
    if not returns:
        return
    parts = [
        prompts.fill_placeholders(
            prompts.load_text("subagent_return"), {"task": back.task, "result": back.result[:RESULT_CHARS_MAX]}
        )
        for back in (returns[call.tool_id] for call in answer.calls if call.tool_id in returns)
    ]
    where = {"depth": str(scope.depth), "thought": scope.notes.last_text[:THOUGHT_CHARS] or "(none)"}
    parts.append(prompts.fill_placeholders(prompts.load_text("subagent_restored"), where))
    await scope.add_user_message("\n\n".join(parts))
