"""Rules for who may answer: `answerers` in approvals.yaml and in tool definitions."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, model_validator
from pydantic.alias_generators import to_camel

from headrace.v1 import common_pb2
from services.runtime.auth.access import REQUESTER, TENANT, USER

NAMES_MAX = 32

COUNT_MAX = 16

Name = Annotated[str, StringConstraints(pattern=r"^(requester|tenant|user:[!-~]{1,128}|role:[!-+\--~]{1,64})$")]

OtherName = Annotated[str, StringConstraints(pattern=r"^(user:[!-~]{1,128}|role:[!-+\--~]{1,64})$")]


class AnswererRule(BaseModel):
    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="forbid", frozen=True)

    any_of: Annotated[tuple[Name, ...], Field(max_length=NAMES_MAX)] = ()
    """Any of these may answer: `requester` (the user of the run), `tenant` (every user of the tenant), `user:NAME`,
    `role:NAME`; 32 at most. By default the requester; with `notRequester`, every other user of the tenant."""

    not_requester: bool = False
    """Four eyes: the requester may not answer, whatever `anyOf` contains. Requires authentication: without it all
    callers are the requester, and no answer is accepted."""

    count: Annotated[int, Field(ge=1, le=COUNT_MAX)] = 1
    """Approvals: how many different users must approve before the call runs, 16 at most; one rejection rejects.
    Requires authentication: without it all callers are the same user, and more than one can never approve."""

    remind_after_ms: Annotated[int, Field(ge=1)] | None = None
    """How long a gate waits before its one reminder, in milliseconds: a `gate.step` `reminded`, sent to webhooks as
    `headrace.gate.reminded`. By default, or if the gate ends earlier, no reminder is sent."""

    escalate_after_ms: Annotated[int, Field(ge=1)] | None = None
    """How long a gate waits before the users in `escalateTo` may also answer, in milliseconds: a `gate.step`
    `escalated`, once, sent to webhooks as `headrace.gate.escalated`."""

    escalate_to: Annotated[tuple[OtherName, ...], Field(max_length=NAMES_MAX)] = ()
    """Who may also answer then: `user:NAME`, `role:NAME`; 32 at most. `notRequester` applies to them as well."""

    @model_validator(mode="after")
    def _check_escalation(self) -> AnswererRule:
        if (self.escalate_after_ms is None) != (not self.escalate_to):
            raise ValueError("escalateAfterMs: it and escalateTo are given together")
        return self

    @model_validator(mode="after")
    def _check_count(self) -> AnswererRule:
        names = {name for name in self.any_of if not (self.not_requester and name == REQUESTER)}
        is_open = not self.any_of and self.not_requester
        is_closed = not is_open and all(name == REQUESTER or name.startswith(USER) for name in names)
        if is_closed and self.count > max(1, len(names)):
            raise ValueError(f"count: {self.count} users must approve, and anyOf names {max(1, len(names))}")
        return self

    def make_answerers(self) -> common_pb2.Answerers:
        names = self.any_of or ((TENANT,) if self.not_requester else (REQUESTER,))
        count = self.count if self.count > 1 else None
        return common_pb2.Answerers(
            any_of=names,
            not_requester=self.not_requester,
            count=count,
            remind_after_ms=self.remind_after_ms,
            escalate_after_ms=self.escalate_after_ms,
            escalate_to=self.escalate_to,
        )
