"""Erasures: all data of the erased user is gone, everybody else's is intact, and the erased user may start again."""

from __future__ import annotations

import json
import zlib
from contextlib import suppress
from typing import TYPE_CHECKING

from headrace.v1 import keys_pb2, memory_pb2, schedule_pb2
from services.memory.data.erasures import KNOWN_S, LOOK_S
from services.runtime.auth.identity import DEFAULT_SCOPES, Identity, acting_as
from services.runtime.randomness import new_uuid
from trials.simulation.judging.chats import Logs, read_logs
from trials.simulation.outside.outside import GUEST
from trials.simulation.people.asked import Asked

if TYPE_CHECKING:
    from collections.abc import Collection

    from headrace.v1 import data_pb2
    from trials.simulation.people.erasing import Erased
    from trials.simulation.people.users import User
    from trials.simulation.world.history import History
    from trials.simulation.world.world import World

CALL_S = 20.0

_GZIP = b"\x1f\x8b\x08"
"""Start of a gzip stream."""

KEPT = ("audit_lines", "revoked_keys", "spend", "this_receipt")
"""Items that a receipt may report as kept if there is no hold."""


async def judge_erasure(world: World, judge: User, erased: Erased) -> list[str]:
    """Search for the guest's words from before the receipt; later ones may stay."""
    if erased.receipt is None:
        return []  # the host has reported this
    problems = [f"the receipt says that {item.name} is kept" for item in erased.receipt.kept if item.name not in KEPT]
    if GUEST not in world.outside.cleared:
        problems.append("there is a receipt, and tools was not asked to erase anything")
    problems += _judge_refusals(world, erased, erased.receipt.done_at)
    late = await _list_records(judge, erased.receipt, problems)
    late += _list_late_lines(world, erased.receipt.done_at)
    problems += _search(world, [word for word in erased.words if not any(word in text for text in late)])
    return [*problems, *await _begin_anew(judge), *await _look_at_kept(judge, erased)]


def list_runs(history: History, logs: Logs, erased: Erased) -> set[str]:
    """Return all runs of the guest, including those unknown to the guest, and those in the logs without a user."""
    name = f"erased-{erased.receipt.erasure_id}" if erased.receipt is not None else GUEST
    lines = [line for lines in logs.values() for line in lines]
    started = {append.run_id for append in history.list_appends() if append.chat_id in erased.own}
    return erased.run_ids | started | {line.get("runId", "") for line in lines if line.get("_user") in (GUEST, name)}


async def _list_records(judge: User, receipt: data_pb2.Erasure, problems: list[str]) -> list[str]:
    """Return the texts of facts and schedules that the guest stored after the receipt."""
    with acting_as(Identity("default", GUEST, scopes=DEFAULT_SCOPES)):
        facts = await judge.try_until_answered(
            lambda: judge.memory.ListFacts(memory_pb2.ListFactsRequest(page_size=200), timeout=CALL_S)
        )
        schedules = await judge.try_until_answered(
            lambda: judge.schedules.ListSchedules(schedule_pb2.ListSchedulesRequest(), timeout=CALL_S)
        )
    stored = [(fact.text, fact.created_at) for fact in facts.facts]
    stored += [(schedule.name, schedule.created_at) for schedule in schedules.schedules]  # derived from its message
    problems += [f"{text!r} is older than the receipt" for text, made_at in stored if made_at < receipt.done_at]
    return [text for text, _ in stored]


def _list_late_lines(world: World, done_at: int) -> list[str]:
    """Return the lines of runs that the guest started after the receipt, which later summaries may quote."""
    late: list[str] = []
    for lines in read_logs(world).values():
        started = {
            line["runId"]
            for line in lines
            if line["_type"] == "query" and line["_user"] == GUEST and line["updatedAt"] >= done_at
        }
        late += [json.dumps(line) for line in lines if line.get("runId") in started]
    return late


def _search(world: World, words: Collection[str]) -> list[str]:
    """Search all bytes of memory's folder, or all rows of its tables, with cassettes decompressed."""
    stored = world.database.tables.read_all() if world.database is not None else world.storage.read_all()
    sought = [word.encode() for word in words]
    texts = ((name, data + _decompress(data)) for name, data in stored)
    return [f"{name} has words of {GUEST}" for name, data in texts if any(word in data for word in sought)]


def _decompress(data: bytes) -> bytes:
    """Return the content of the first gzip stream in `data`, as far as it is complete."""
    at = data.find(_GZIP)
    if at < 0:
        return b""
    with suppress(zlib.error):
        return zlib.decompressobj(wbits=31).decompress(data[at:])
    return b""


def _judge_refusals(world: World, erased: Erased, done_at: int) -> list[str]:
    """Check that requests were refused from when every service knew of the erasure until the receipt."""
    known_s = erased.requested_s + (KNOWN_S + LOOK_S if len(world.memories) > 1 else 0.0)
    return [
        f"a fact was taken at {asked_s:.3f}, while {GUEST} was erased"
        for asked_s, made_at in erased.stored
        if asked_s > known_s and made_at < done_at
    ]


async def _begin_anew(judge: User) -> list[str]:
    with acting_as(Identity("default", GUEST, scopes=DEFAULT_SCOPES)):
        asked = Asked(new_uuid(), new_uuid(), "a question of another life", "oneshot")
        await judge.ask(asked)
    return [] if asked.outcome == "run.complete" else [f"{GUEST} may ask nothing anew: {asked.outcome}"]


async def _look_at_kept(judge: User, erased: Erased) -> list[str]:
    facts = await judge.try_until_answered(
        lambda: judge.memory.ListFacts(memory_pb2.ListFactsRequest(page_size=200), timeout=CALL_S)
    )
    is_kept = erased.kept_fact in [fact.text for fact in facts.facts]
    problems = [] if is_kept else ["what another has stored is gone"]
    get = keys_pb2.GetKeyRequest(key_id=erased.key_id)
    found = await judge.try_until_answered(lambda: judge.keys.GetKey(get, timeout=CALL_S))
    if found is None or found.key.state != "revoked":
        problems.append(f"the key of {GUEST} is {found or judge.refusal}")
    return problems
