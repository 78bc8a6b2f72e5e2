"""A followed chat for the adapters: two successive runs of an agent, with a compaction between them."""

from collections.abc import Sequence
from typing import cast

from headrace.v1 import agent_pb2
from tests.support.facade.openai_api import thinking
from tests.support.facade.scripted import BLOCK, CHAT, RUN, Script, Step, delta, opening, text

SECOND = "22222222-2222-4222-8222-2222222222aa"

LIVE: list[Step] = [*thinking()[:7], text(9, "I look."), *thinking()[9:]]
"""A run whose reader comes back while it is live: what was said comes in one piece."""

ENDED: list[Step] = [
    *opening(),
    delta(6, reasoning_snapshot=agent_pb2.ReasoningSnapshot(reasoning_id=f"{RUN}_r_1", text="Hm")),
    delta(10, content_snapshot=agent_pb2.ContentSnapshot(content_id=BLOCK, text="I look.")),
    *thinking()[10:],
]
"""The same run, told after its end."""

COMPACTION = agent_pb2.FollowDelta(cursor="9.0", delta=delta(0, compaction_complete=agent_pb2.CompactionComplete()))


def number(n: int, run_id: str, steps: Sequence[Step]) -> list[agent_pb2.FollowDelta]:
    followed: list[agent_pb2.FollowDelta] = []
    for event in cast("Sequence[agent_pb2.AgentDelta]", steps):
        copy = agent_pb2.AgentDelta.FromString(event.SerializeToString())
        if copy.HasField("run_start"):
            copy.run_start.run_id = run_id
        followed.append(agent_pb2.FollowDelta(cursor=f"{n}.{copy.seq}", run_id=run_id, delta=copy))
    return followed


def script_chat(*publish: str) -> Script:
    """Return a script of a chat with two live runs, and of a Follow stream over both."""
    runs = [agent_pb2.Run(run_id=run_id, chat_id=CHAT, agent_key="helper") for run_id in (RUN, SECOND)]
    return Script(follows=[follow_from("")], publish=publish, run=runs[0], runs=runs)


def follow_from(cursor: str, steps: Sequence[Step] = ()) -> list[agent_pb2.FollowDelta]:
    """Return what Follow sends of the chat, from the beginning of the cursor's run."""
    steps = steps or thinking()
    second = number(10, SECOND, steps)
    return second if cursor.startswith("10.") else [*number(1, RUN, steps), COMPACTION, *second]
