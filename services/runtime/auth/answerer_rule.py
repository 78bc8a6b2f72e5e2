"""Who may answer, as files say it: `answerers` of approvals.yaml and of tools' definitions."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, StringConstraints
from pydantic.alias_generators import to_camel

from headrace.v1 import common_pb2
from services.runtime.auth.answerers import REQUESTER, TENANT

NAMES_MAX = 32

Name = Annotated[str, StringConstraints(pattern=r"^(requester|tenant|user:[!-~]{1,128}|role:[!-+\--~]{1,64})$")]


class AnswererRule(BaseModel):
    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="forbid", frozen=True)

    any_of: Annotated[tuple[Name, ...], Field(max_length=NAMES_MAX)] = ()
    """Any of these may answer: `requester` (whose run it is), `tenant` (every user of the tenant), `user:NAME`,
    `role:NAME`; 32 at most. Left out, the requester; with `notRequester`, every other user of the tenant."""

    not_requester: bool = False
    """Four eyes: the requester may not answer, whatever `anyOf` says. It needs authentication: without it everybody is
    the requester, and nobody can answer."""

    def make_answerers(self) -> common_pb2.Answerers:
        names = self.any_of or ((TENANT,) if self.not_requester else (REQUESTER,))
        return common_pb2.Answerers(any_of=names, not_requester=self.not_requester)
