"""The parent's context around its sub-agents, where recap is on: kept before, told again behind the results.

The parent's log is not reverted for it: the sub-agent had a context of its own.
"""

from __future__ import annotations

import msgspec

from services.orchestrator.agents import prompts
from services.orchestrator.peers.stubs import Peers
from services.orchestrator.run import session_state
from services.orchestrator.run.answers.answer import Answer
from services.orchestrator.run.scope import Scope

THOUGHT_CHARS = 200
"""Of what the parent's model said last."""

RESULT_CHARS_MAX = 500
"""Of a result, which the model has in full as the call's own."""


class ParentContext(msgspec.Struct, rename="camel"):
    """In the session state of a sub-agent: where its parent stood."""

    parent_id: str
    checkpoint: int
    sub_goal: str
    latest_thought: str
    depth: int


async def push(scope: Scope, parent: Scope, peers: Peers, task: str) -> None:
    """Keep where the parent stands when it calls the sub-agent of `scope`."""
    if not parent.agent.memory.recap.enabled or not scope.recording.is_used_up:
        return
    kept = ParentContext(
        parent_id=parent.subagent_id or "main",
        checkpoint=parent.run.checkpoint_id or 0,
        sub_goal=task[:THOUGHT_CHARS],
        latest_thought=parent.said[:THOUGHT_CHARS],
        depth=parent.depth,
    )
    await session_state.change(scope, peers, parent_context=msgspec.json.encode(kept))


async def restore(scope: Scope, answer: Answer) -> None:
    """Tell the model where it stands, once the results of all calls of `answer` are stored."""
    returned, scope.returned = scope.returned, {}
    if not returned:
        return
    back = [returned[call.tool_id] for call in answer.calls if call.tool_id in returned]
    parts = [
        prompts.fill_placeholders(
            prompts.load_text("subagent_return"), {"task": task, "result": result[:RESULT_CHARS_MAX]}
        )
        for task, result in back
    ]
    where = {"depth": str(scope.depth), "thought": scope.said[:THOUGHT_CHARS] or "(none)"}
    parts.append(prompts.fill_placeholders(prompts.load_text("subagent_restored"), where))
    await scope.add_user_message("\n\n".join(parts))
