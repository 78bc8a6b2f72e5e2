"""Parts of a simulated world that outlive every process: effects of tools, and requests to models."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING

import grpc

from headrace.v1 import common_pb2

if TYPE_CHECKING:
    from headrace.v1 import llm_pb2
    from trials.simulation.story import Story

EFFECTS = {"look": "read", "set": "idempotent", "pay": "once", "send": "once"}
"""Tools, and the effect of running each twice."""

ONCE = frozenset(name for name, effect in EFFECTS.items() if effect == "once")
"""Tools that must not run twice."""

ASKS = "send"
"""Tool with calls that each need a person's approval."""

FORM = "form"
"""Tool with a form for a person."""

FORM_WAITS_MS = 25_000

REQUESTER, FIRST, SECOND, ASKED_TOO, GUEST = "ann", "ben", "cem", "dot", "eve"
"""Users: the requester, two who answer gates, one to whom gates are delegated, and one who is erased."""

RULES = {
    "two": common_pb2.Answerers(any_of=["tenant"], count=2),
    "four eyes": common_pb2.Answerers(any_of=["tenant"], not_requester=True),
    "escalating": common_pb2.Answerers(
        any_of=[f"user:{FIRST}"], remind_after_ms=2000, escalate_after_ms=6000, escalate_to=[f"user:{SECOND}"]
    ),
}

BEGUN = ""
"""State of an effect that has started and not ended."""

WORDS = ("alder", "birch", "cedar", "elm", "fir", "hazel", "larch", "maple", "oak", "pine", "rowan", "yew")


@dataclass
class Outside:
    random: Random
    story: Story
    effects: Counter[str] = field(default_factory=Counter[str])
    """How often each effect happened, by effect key."""
    once: Counter[str] = field(default_factory=Counter[str])
    """How often each effect of a `once` tool happened."""
    begun: dict[str, str] = field(default_factory=dict[str, str])
    """Result of each started effect of a `once` tool; BEGUN until it has ended."""
    ran_with: dict[tuple[str, str], list[str]] = field(default_factory=dict[tuple[str, str], list[str]])
    """Arguments of each execution of a call that needs approval, by run and call."""
    problems: list[str] = field(default_factory=list[str])
    model_fault: float = 0.0
    """Probability that a model call fails."""
    tool_fault: float = 0.0
    gate_rule: str = ""
    """Rule for answering ASKS, one of RULES; empty if there is none."""
    delay_s: tuple[float, float] = (0.001, 0.3)
    """Range of the time between two deltas."""
    requests: int = 0
    asks_nobody: bool = False
    """Whether tools do not declare that they need approval: a planted bug."""
    cleared: set[str] = field(default_factory=set[str])
    """Users with erased data in the tools service."""
    forgets_effects: bool = False
    """Whether tools keep no record of their effects: a planted bug."""

    def check_request(self, request: llm_pb2.ChatRequest) -> None:
        """Report a request that providers would refuse: a call without its result, or a result without its call."""
        self.requests += 1
        waiting: list[str] = []
        for message in request.messages:
            if message.role == "tool":
                if message.tool_call_id not in waiting:
                    self.problems.append(f"a request has a result without a call: {message.tool_call_id}")
                else:
                    waiting.remove(message.tool_call_id)
                continue
            if waiting:
                self.problems.append(f"a request has calls without results: {waiting}")
            waiting = [call.id for call in message.tool_calls]
        if waiting:
            self.problems.append(f"a request ends with calls without results: {waiting}")


def make_break() -> grpc.aio.AioRpcError:
    """Return the error of a closed connection, without details, unlike errors raised by a service."""
    nothing = grpc.aio.Metadata()
    return grpc.aio.AioRpcError(grpc.StatusCode.UNAVAILABLE, nothing, nothing, "gone")
