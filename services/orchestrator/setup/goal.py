"""The goal of a chat: its last user message, or with a model that judges them the last one that states a new goal."""

from __future__ import annotations

from headrace.v1 import memory_pb2
from services.orchestrator.peers.stubs import Peers
from services.orchestrator.run.run import Run
from services.orchestrator.turn import side_question
from services.orchestrator.turn.compacting import compact_command

GOAL_CHARS_MAX = 200

MESSAGES_TOLD_MAX = 10
MESSAGE_CHARS_MAX = 500

STAGE = "goal"

SYSTEM = """\
These are the messages of a user to an assistant, the last one just now. Answer with one word: NEW when the last one \
states a goal of its own, SAME when it goes on with what was wanted before."""


async def record_goal(run: Run, peers: Peers) -> None:
    """Log the goal; a model judges where the agent lets it write insights."""
    recap = run.agent.memory.recap
    if not recap.enabled or compact_command.is_compact_command(run.query.message) or run.recording.has_goal:
        return
    await run.state.wait_for_start()
    if run.chat.is_first or recap.insights != "llm" or await _states_new_goal(run, peers):
        goal = run.query.message[:GOAL_CHARS_MAX]
        await run.log.append([memory_pb2.LogLine(intent=memory_pb2.NoteLine(text=goal))])


async def _states_new_goal(run: Run, peers: Peers) -> bool:
    request = memory_pb2.LoadContextRequest(chat_id=run.chat_id, run_id=run.id, unfitted=True)
    context = await peers.memory.LoadContext(request)
    said = ["".join(part.text for part in message.content) for message in context.messages if message.role == "user"]
    text = "\n\n".join(message[:MESSAGE_CHARS_MAX] for message in said[-MESSAGES_TOLD_MAX:])
    return (await side_question.ask_model(run, peers, STAGE, SYSTEM, text)).strip().upper().startswith("NEW")
