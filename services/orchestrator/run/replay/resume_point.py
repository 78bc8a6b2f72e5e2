"""The point from which this process continues an earlier owner's run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from headrace.v1 import agent_pb2, memory_pb2
from services.orchestrator.peers.stubs import Peers
from services.orchestrator.run.log import RunLog
from services.orchestrator.run.replay.replay import Recording


@dataclass(frozen=True, slots=True)
class ResumePoint:
    generation: int = 0
    """0 for a run that begins here."""
    seq: int = 0
    history: Sequence[agent_pb2.AgentDelta] = ()
    recording: Recording = field(default_factory=Recording)
    reason: str = ""
    is_changed: bool = False
    traceparent: str = ""
    """Empty when the query's span was not recorded."""
    chat_owner: str = ""
    """The user whose chat it is; empty: not known yet."""

    def log(
        self,
        chat_id: str,
        run_id: str,
        peers: Peers,
        charges: list[memory_pb2.Charge],
        release: Callable[[int], None],
    ) -> RunLog:
        return RunLog(
            chat_id,
            run_id,
            peers,
            charges,
            release,
            generation=self.generation,
            step=self.recording.steps,
            covered_seq=self.seq,
        )


NEW = ResumePoint()
