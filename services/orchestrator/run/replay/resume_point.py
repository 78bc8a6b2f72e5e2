"""The point from which this process continues an earlier owner's run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from headrace.v1 import agent_pb2, memory_pb2
from services.orchestrator.peers.stubs import Peers
from services.orchestrator.run.control.waits import Submission, Waits
from services.orchestrator.run.log import RunLog
from services.orchestrator.run.replay.replay import Recording

EXPIRED = "expired"
"""State of a gate whose time was over before an answer."""


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

    def waits(self) -> Waits:
        waits = Waits()
        for event in self.recording.events:
            if event.HasField("gate_open"):
                waits.expect(event.gate_open, opened_at=event.timestamp)
        for step in self.recording.find_payloads("gate_step"):
            if (state := waits.find_gate(step.gate_id)) is not None:
                state.note(step)
        for submit in self.recording.find_payloads("request_submit"):
            waits.recall(submit.tool_id, submit.request_id, Submission(submit.payload, submit.by, submit.credential))
        for close in self.recording.find_payloads("gate_close"):
            if close.state == EXPIRED:
                waits.end(close.gate_id)
        return waits


NEW = ResumePoint()
