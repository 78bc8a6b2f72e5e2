"""Gates in the index: opened and closed by the lines of a chat.

A gate keeps its row after it is closed, as long as its chat exists.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from services.memory.log.lines import Event, Line, Run
from services.memory.log.raw_json import GATE_EVENT, Answerers, GateEvent
from services.runtime.auth.access import REQUESTER, USER

if TYPE_CHECKING:
    import msgspec

    from services.memory.log.chat_info import ChatInfo

OPEN, ANSWERED, CANCELLED = "open", "answered", "cancelled"


@dataclass(frozen=True, slots=True)
class GateEntry:
    """A row; its fields are in the order of the columns."""

    run_id: str
    gate_id: str
    chat_id: str
    tenant: str
    requester: str
    agent_key: str
    kind: str
    tool_id: str
    tool_name: str
    risk: str
    reason: str
    viewport_key: str
    opened_at: int
    expires_at: int
    state: str = OPEN
    closed_at: int = 0
    answered_by: str = ""
    credential: str = ""
    answerers: str = ""
    """Names of the users who may answer, each between line breaks; the run's user appears as a user name."""
    not_requester: int = 0
    """1 if the requester may not answer."""
    votes_needed: int = 1
    voters: str = ""
    """Users who have approved, each between line breaks."""
    claimed_by: str = ""
    claimed_until: int = 0
    """0: not claimed."""

    @property
    def names(self) -> list[str]:
        return self.answerers.split()


COLUMNS = ", ".join(GateEntry.__dataclass_fields__)


@dataclass(frozen=True, slots=True)
class GateClosing:
    """The end of a gate opened by an earlier append."""

    run_id: str
    gate_id: str | None
    """None: all open gates of the run."""
    state: str
    closed_at: int
    answered_by: str = ""
    credential: str = ""


@dataclass(frozen=True, slots=True)
class GateUpdate:
    """The change that a gate.step makes to the row of a gate opened by an earlier append."""

    run_id: str
    gate_id: str
    answerers: str = ""
    """Names to be added."""
    voters: str = ""
    """Users to be added."""
    is_restart: bool = False
    """Whether earlier approvals no longer count."""
    claimed_by: str | None = None
    """The user who claimed it; empty: the claim was released; None: no change."""
    claimed_until: int | None = None

    def apply(self, entry: GateEntry) -> GateEntry:
        voters = self.voters if self.is_restart else entry.voters + self.voters
        entry = replace(entry, answerers=entry.answerers + self.answerers, voters=voters)
        if self.claimed_by is not None and self.claimed_until is not None:
            entry = replace(entry, claimed_by=self.claimed_by, claimed_until=self.claimed_until)
        return entry


@dataclass(frozen=True, slots=True)
class GateChange:
    opened: Sequence[GateEntry] = ()
    """Rows after the change; some may be closed already."""
    closings: Sequence[GateClosing] = ()
    updates: Sequence[GateUpdate] = ()
    """Before the closings, in order."""
    grants: Sequence[GrantEntry] = ()
    """Rows after the change."""

    def __bool__(self) -> bool:
        return bool(self.opened or self.closings or self.updates or self.grants)


def fold_gates(info: ChatInfo, lines: Iterable[Line]) -> GateChange:
    """Return the changes that `lines` make to the gates of their chat; `info` knows its runs."""
    opened: dict[tuple[str, str], GateEntry] = {}
    closings: list[GateClosing] = []
    updates: list[GateUpdate] = []
    for line in lines:
        run = info.runs.get(line.run_id)
        # In a damaged log the unreadable line may be the run's query; another query states the chat's owner.
        may_wait = run.has_gates if run is not None else info.is_damaged and bool(info.runs)
        if not may_wait:
            continue
        if isinstance(line, Event):
            event = decode_gate_event(line.event)
            if event.type == "gate.open":
                opened[line.run_id, event.gate_id] = _make_entry(info, line.run_id, event)
            elif event.type == "gate.step":
                key, update = (line.run_id, event.gate_id), _make_update(line.run_id, event)
                if key not in opened:
                    if not any(end.run_id == line.run_id and end.gate_id in (None, event.gate_id) for end in closings):
                        updates.append(update)
                elif opened[key].state == OPEN:
                    opened[key] = update.apply(opened[key])
            elif (closing := make_closing(line.run_id, event)) is not None:
                closings += _close(opened, closing)
        elif isinstance(line, Run):
            closings += _close(opened, GateClosing(line.run_id, None, CANCELLED, line.updated_at))
    return GateChange([*opened.values()], closings, updates)


def decode_gate_event(event: msgspec.Raw) -> GateEvent:
    return GATE_EVENT.decode(event)


def _make_entry(info: ChatInfo, run_id: str, event: GateEvent) -> GateEntry:
    rule = event.answerers or Answerers()
    requester = info.find_requester(run_id)
    names = [USER + requester if name == REQUESTER else name for name in rule.any_of or [REQUESTER]]
    return GateEntry(
        run_id=run_id,
        gate_id=event.gate_id,
        chat_id=info.chat_id,
        tenant=info.owner.tenant,
        requester=requester,
        agent_key=event.agent_key,
        kind=event.kind,
        tool_id=event.tool_id,
        tool_name=event.tool_name,
        risk=event.risk,
        reason=event.reason,
        viewport_key=event.viewport_key,
        opened_at=event.timestamp,
        expires_at=event.expires_at,
        answerers=_join_names(names),
        not_requester=int(rule.not_requester),
        votes_needed=rule.count,
    )


def _make_update(run_id: str, event: GateEvent) -> GateUpdate:
    is_vote = event.step == "vote"
    is_claim, is_release = event.step == "claimed", event.step == "released"
    return GateUpdate(
        run_id,
        event.gate_id,
        answerers=_join_names(event.to) if event.step in ("delegated", "escalated") else "",
        voters=_join_names([event.by]) if is_vote else "",
        is_restart=is_vote and event.decision == "edit",
        claimed_by=event.by if is_claim else "" if is_release else None,
        claimed_until=event.until if is_claim else 0 if is_release else None,
    )


def _join_names(names: Iterable[str]) -> str:
    return "".join(f"\n{name}\n" for name in names)


def make_closing(run_id: str, event: GateEvent) -> GateClosing | None:
    if event.type == "gate.close":
        return GateClosing(run_id, event.gate_id, event.state, event.timestamp, event.answered_by, event.credential)
    if event.type == "request.submit":  # decisive, even if the process dies before it reports the close
        return GateClosing(run_id, event.tool_id, ANSWERED, event.timestamp, event.by, event.credential)
    return None


def _close(opened: dict[tuple[str, str], GateEntry], closing: GateClosing) -> list[GateClosing]:
    """Close gates in `opened`; return the closings that apply to earlier rows."""
    for key, entry in opened.items():
        is_meant = key[0] == closing.run_id and closing.gate_id in (None, key[1])
        if is_meant and entry.state == OPEN:
            opened[key] = replace(
                entry,
                state=closing.state,
                closed_at=closing.closed_at,
                answered_by=closing.answered_by,
                credential=closing.credential,
            )
    return [] if (closing.run_id, closing.gate_id) in opened else [closing]


@dataclass(frozen=True, slots=True)
class GrantEntry:
    """A row; its fields are in the order of the columns."""

    chat_id: str
    grant_id: str
    run_id: str
    tenant: str
    requester: str
    made_by: str
    """Users who have approved, each between line breaks."""
    made_at: int
    expires_at: int
    """Unix milliseconds; 0: at the end of its run."""
    is_over: int
    """1 if it ended early."""
    event: str
    """The event grant.make, as JSON."""


GRANT_COLUMNS = ", ".join(GrantEntry.__dataclass_fields__)


def make_grant_rows(info: ChatInfo, since_n: int) -> list[GrantEntry]:
    """Return the rows of the chat's grants that lines from `since_n` on have changed."""
    return [
        GrantEntry(
            chat_id=info.chat_id,
            grant_id=grant.grant_id,
            run_id=grant.run_id,
            tenant=info.owner.tenant,
            requester=info.find_requester(grant.run_id),
            made_by="".join(f"\n{user}\n" for user in grant.made_by),
            made_at=grant.made_at,
            expires_at=grant.expires_at,
            is_over=int(bool(grant.end)),
            event=bytes(grant.event).decode(),
        )
        for grant in info.grants.values()
        if grant.changed_n >= since_n
    ]
