"""Grants of a chat, folded from its lines: approvals that cover later calls, and the reasons they ended."""

from __future__ import annotations

from dataclasses import dataclass, replace

import msgspec
from msgspec import Raw

from services.memory.log.lines import Event, Line, Revert, Revocation, Run

FOR_RUN = "run"

REVOKED, RUN_ENDED, REVERTED = "revoked", "run ended", "reverted"
"""Reasons why a grant ended early."""


class _GrantFields(msgspec.Struct, rename="camel", gc=False):
    type: str = ""
    timestamp: int = 0
    grant_id: str = ""
    scope: str = ""
    made_by: list[str] = []
    expires_at: int = 0


_FIELDS = msgspec.json.Decoder(_GrantFields)


@dataclass(frozen=True, slots=True)
class GrantInfo:
    grant_id: str
    run_id: str
    scope: str
    """run or chat."""
    made_by: tuple[str, ...]
    """Users."""
    made_at: int
    expires_at: int
    """Unix milliseconds; 0: at the end of its run."""
    checkpoint: int
    """The chat's number of checkpoints at the time; a revert to one of them removes the grant."""
    event: Raw
    """The event grant.make, as JSON."""
    changed_n: int
    """Number of the line that last changed it."""
    end: str = ""
    """Why it ended early; empty if it did not."""


def fold_grants(grants: dict[str, GrantInfo], line: Line, checkpoints: int, *, may_make: bool) -> None:
    """Apply a line of the chat to `grants`, by id; `checkpoints` is the number before the line.

    `may_make` states whether the line's run has waited for a person, because a grant is a person's answer.
    """
    match line:
        case Event() if may_make:
            _add_grant(grants, line, checkpoints)
        case Run():
            of_run = (grant for grant in grants.values() if grant.scope == FOR_RUN and grant.run_id == line.run_id)
            _end(grants, line.n, RUN_ENDED, {grant.grant_id for grant in of_run})
        case Revocation():
            _end(grants, line.n, REVOKED, {line.grant_id})
        case Revert():
            behind = {key for key, grant in grants.items() if grant.checkpoint > line.to_checkpoint_id}
            _end(grants, line.n, REVERTED, behind)
        case _:
            pass


def _add_grant(grants: dict[str, GrantInfo], line: Event, checkpoints: int) -> None:
    found = _FIELDS.decode(line.event)
    if found.type != "grant.make":
        return
    grants[found.grant_id] = GrantInfo(
        grant_id=found.grant_id,
        run_id=line.run_id,
        scope=found.scope,
        made_by=tuple(found.made_by),
        made_at=found.timestamp,
        expires_at=found.expires_at,
        checkpoint=checkpoints,
        event=line.event,
        changed_n=line.n,
    )


def _end(grants: dict[str, GrantInfo], n: int, end: str, ended: set[str]) -> None:
    for key in ended & grants.keys():
        if not grants[key].end:
            grants[key] = replace(grants[key], end=end, changed_n=n)
