"""What a run was before this process had it, and what of it begins where the owner before left off."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from headrace.v1 import agent_pb2
from services.orchestrator.peers.stubs import Peers
from services.orchestrator.run.control.waits import Waits
from services.orchestrator.run.log import RunLog
from services.orchestrator.run.replay.replay import Recording


@dataclass(frozen=True, slots=True)
class ResumePoint:
    """What a run was before this process had it."""

    generation: int = 0
    """Of our lease."""
    seq: int = 0
    """Behind which our events are numbered."""
    history: Sequence[agent_pb2.AgentDelta] = ()
    """What readers may rely on."""
    recording: Recording = field(default_factory=Recording)
    reason: str = ""
    """Why it came to us; empty: it has begun here."""
    is_changed: bool = False
    """Whether its agent is not as it was at its beginning."""
    traceparent: str = ""
    """The span that its query came in; empty: none was recorded."""

    def log(self, chat_id: str, run_id: str, peers: Peers) -> RunLog:
        """The run's log from here on."""
        return RunLog(
            chat_id, run_id, peers, generation=self.generation, step=self.recording.steps, covered_seq=self.seq
        )

    def waits(self) -> Waits:
        """Its waits for people, with what was submitted already."""
        waits = Waits()
        for submit in self.recording.told("request_submit"):
            waits.recall(submit.tool_id, submit.request_id, submit.payload)
        return waits


NEW = ResumePoint()
"""Of all runs that begin here."""
