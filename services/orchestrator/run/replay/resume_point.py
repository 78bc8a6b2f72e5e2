"""The point at which this process goes on with a run of an earlier owner."""

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
    generation: int = 0
    """Generation of our lease; 0 for a run that begins here."""
    seq: int = 0
    """Sequence number after which our events are numbered."""
    history: Sequence[agent_pb2.AgentDelta] = ()
    """Events that readers may rely on."""
    recording: Recording = field(default_factory=Recording)
    reason: str = ""
    """Why the run came to us; empty when it began here."""
    is_changed: bool = False
    """True when its agent is not as it was at its beginning."""
    traceparent: str = ""
    """The span of its query; empty when none was recorded."""

    def log(self, chat_id: str, run_id: str, peers: Peers) -> RunLog:
        """Open the run's log from here on."""
        return RunLog(
            chat_id, run_id, peers, generation=self.generation, step=self.recording.steps, covered_seq=self.seq
        )

    def waits(self) -> Waits:
        """Restore its waits for people, with the submits so far."""
        waits = Waits()
        for submit in self.recording.told("request_submit"):
            waits.recall(submit.tool_id, submit.request_id, submit.payload)
        return waits


NEW = ResumePoint()
"""The point of runs that begin here."""
