"""A gate as a line of the terminal."""

from __future__ import annotations

import msgspec

from headrace.cli.run_view.answerers import describe_answerers
from headrace.cli.run_view.times import format_time


class _Answerers(msgspec.Struct, frozen=True, rename="camel"):
    any_of: tuple[str, ...] = ()
    not_requester: bool = False
    count: int = 1


class Gate(msgspec.Struct, frozen=True, rename="camel"):
    """A gate as GET /api/gates and GET /api/gates/watch have it."""

    run_id: str
    gate_id: str
    agent_key: str
    kind: str
    tool_name: str
    requester: str
    opened_at: int
    state: str = "open"
    risk: str = ""
    reason: str = ""
    answerers: _Answerers = _Answerers()
    voters: tuple[str, ...] = ()
    claimed_by: str = ""
    claimed_until: int = 0

    @property
    def line(self) -> str:
        about = f"{self.tool_name} of {self.agent_key} for {self.requester}"
        why = f" ({self.risk} risk: {self.reason})" if self.kind == "approval" else ""
        why = f" ({self.reason})" if self.kind in ("credential", "form") and self.reason else why
        rule = self.answerers
        who = describe_answerers(rule.any_of, not_requester=rule.not_requester, count=rule.count)
        by = f", to be answered by {who}" if who not in ("", f"user:{self.requester}") else ""
        by += f" ({', '.join(self.voters)} approved)" if self.voters else ""
        if self.claimed_by:
            by += f", being answered by {self.claimed_by} until {format_time(self.claimed_until)}"
        line = f"{self.run_id}  {self.gate_id}  {format_time(self.opened_at)}  {self.kind}  {about}{why}{by}"
        return line.replace("\n", "\\n")  # what others have written makes no second line, which would look like a gate
