"""Grants of a chat, folded from its lines: approvals that hold for later calls, and what has ended them."""

from __future__ import annotations

from dataclasses import dataclass, replace

import msgspec
from msgspec import Raw

from services.memory.log.lines import Event, Line, Revert, Revocation, Run

FOR_RUN = "run"

REVOKED, RUN_ENDED, REVERTED = "revoked", "run ended", "reverted"
"""What has ended a grant before its time."""


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
    """Unix milliseconds; 0: with its run."""
    checkpoint: int
    """How many checkpoints the chat had: a revert to one of them takes the grant back."""
    event: Raw
    """The event grant.make, as JSON."""
    changed_n: int
    """Number of the line that has changed it last."""
    end: str = ""
    """What has ended it before its time; empty: nothing."""


def fold_grants(grants: dict[str, GrantInfo], line: Line, checkpoints: int, *, may_make: bool) -> None:
    """Change `grants`, by their ids, by a line of their chat, which has so many checkpoints before it; `may_make` says
    whether its run has waited for a person, as a grant is a person's answer."""
    match line:
        case Event() if may_make:
            _add_grant(grants, line, checkpoints)
        case Run():
            _end(grants, line.n, RUN_ENDED, {key for key, grant in grants.items() if _ends_with(grant, line)})
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


def _ends_with(grant: GrantInfo, line: Run) -> bool:
    return grant.scope == FOR_RUN and grant.run_id == line.run_id


def _end(grants: dict[str, GrantInfo], n: int, end: str, ended: set[str]) -> None:
    for key in ended & grants.keys():
        if not grants[key].end:
            grants[key] = replace(grants[key], end=end, changed_n=n)
