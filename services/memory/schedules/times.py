"""The times of a schedule."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from functools import lru_cache
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

import structlog
from cronsim import CronSim, CronSimError

from headrace.errors import InvalidRequest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from services.memory.storage.records.schedules import Schedule

FIELDS = 5

PASSED_MAX = 1000
"""Maximum times counted."""

JITTER_S_MAX = 3600

ONCE_AT_MAX = 253_402_300_799_999
"""The last millisecond that dates can represent."""

MS = 1000

_OTHER_ZONES = re.compile(r"localtime$|posixrules$|Factory$|(right|posix)/")
"""Names in a machine's zone database that are not IANA zones: the machine's own zone, and copies of all zones in
`right/`, which counts leap seconds, and `posix/`."""

log = structlog.get_logger()


def find_next(schedule: Schedule, after_ms: int) -> int:
    """Return the schedule's first time after `after_ms`; 0 if there is none."""
    if not schedule.cron:
        return schedule.once_at if schedule.once_at > after_ms else 0
    return next(_iterate_times(schedule, after_ms), 0)


def count_between(schedule: Schedule, after_ms: int, until_ms: int) -> int:
    """Return the number of times after `after_ms` up to `until_ms`, at most PASSED_MAX."""
    if not schedule.cron:
        return 0
    count = 0
    for time_ms in _iterate_times(schedule, after_ms):
        if time_ms > until_ms or count == PASSED_MAX:
            break
        count += 1
    return count


def find_last(schedule: Schedule, due_ms: int, until_ms: int) -> int:
    """Return the last time from `due_ms`, itself a time, up to `until_ms`."""
    if not schedule.cron:
        return due_ms
    before = next(_iterate(schedule, until_ms + MS, is_reverse=True), None)
    return max(due_ms, int(before.timestamp()) * MS) if before else due_ms


def check_times(schedule: Schedule) -> None:
    """Raise InvalidRequest, naming the field, for invalid times."""
    if schedule.cron and schedule.once_at:
        raise InvalidRequest.of("cron", "or onceAt must be given, and only one of them")
    if not (schedule.cron or schedule.once_at or schedule.on_webhook):
        raise InvalidRequest.of("cron", "or onceAt must be given, and only one of them, where onWebhook is not true")
    if not _is_of_iana(schedule.time_zone):
        raise InvalidRequest.of("timeZone", "must be a name of the IANA database, such as Europe/Berlin")
    if not 0 <= schedule.jitter_s <= JITTER_S_MAX:
        raise InvalidRequest.of("jitterS", f"must be 0 to {JITTER_S_MAX}")
    if not 0 <= schedule.once_at <= ONCE_AT_MAX:
        raise InvalidRequest.of("onceAt", "must be Unix milliseconds before the year 10000")
    if schedule.cron:
        if len(schedule.cron.split()) != FIELDS:
            raise InvalidRequest.of("cron", "must have five fields: minute, hour, day of month, month, day of week")
        try:
            CronSim(schedule.cron, datetime.now(UTC))
        except CronSimError as error:
            raise InvalidRequest.of("cron", f"must be valid: {str(error).lower()}") from None


def _is_of_iana(zone: str) -> bool:
    try:
        _load_zone(zone)
    except (OSError, ValueError, KeyError):
        return False
    return _OTHER_ZONES.match(zone) is None


def check_next(schedule: Schedule) -> None:
    """Raise InvalidRequest for a schedule without future times."""
    if not schedule.next_at and (schedule.cron or schedule.once_at):
        raise InvalidRequest.of("cron" if schedule.cron else "onceAt", "must have a time to come")


def _iterate_times(schedule: Schedule, after_ms: int) -> Iterator[int]:
    for time in _iterate(schedule, after_ms):
        time_ms = int(time.timestamp()) * MS
        if time_ms > after_ms:
            yield time_ms


def _iterate(schedule: Schedule, from_ms: int, *, is_reverse: bool = False) -> Iterator[datetime]:
    """Yield the times of a stored schedule; none if its time zone or format is no longer supported, so that other
    schedules continue."""
    try:
        start = datetime.fromtimestamp(from_ms // MS, UTC).astimezone(_load_zone(schedule.time_zone))
        times = CronSim(schedule.cron, start, reverse=is_reverse)
    except (OSError, ValueError, KeyError, CronSimError) as error:
        log.error("schedule has no times any more", schedule_id=schedule.schedule_id, error=str(error))
        return
    yield from times


@lru_cache(maxsize=1000)
def _load_zone(name: str) -> ZoneInfo:
    return ZoneInfo(name or "UTC")
