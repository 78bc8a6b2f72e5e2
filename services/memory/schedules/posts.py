"""Webhook posts to a schedule: authentication, limits, and updates of the record.

A post that cannot be authenticated always gets the same error. The work depends only on the post, so that it reveals
nothing about existing schedules.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec
from msgspec.structs import replace

from headrace.errors import InvalidRequest, QueueFull, Unauthenticated
from services.memory.storage.records.schedules import Post, Schedule
from services.memory.storage.records.webhooks import Secret
from services.memory.webhooks.forms import VERSION, is_signed, make_secret

PAYLOAD_BYTES_MAX = 65_536

POSTS_MAX = 16
"""Maximum posts of a schedule that wait for their runs."""

TAKEN_MAX = 200
"""Maximum post ids kept to detect repetitions. Posts signed before the oldest of them are refused."""

TOLERANCE_S = 300
"""Maximum difference between a sender's clock and ours, and maximum age of a post."""

SECRETS_MAX = 2
"""The newest secret, and the previous one while it is valid."""

ID_CHARS_MAX = 256
SIGNATURE_CHARS_MAX = 4096

RETRY_AFTER_S = 5.0

ACCEPTED, DUPLICATE, PAUSED = "accepted", "duplicate", "paused"

_REFUSAL = "nothing here takes this post: address, signature or time is wrong"

_STRANGER = tuple(make_secret() for _ in range(SECRETS_MAX))
"""Random secrets, tried if a schedule has none."""


@dataclass(frozen=True, slots=True)
class Posted:
    """A post as it came."""

    webhook_id: str
    timestamp: str
    signature: str
    payload: bytes


def check_form(posted: Posted, now_ms: int) -> None:
    """Check everything that does not require the schedule. Raises Unauthenticated."""
    name, at = posted.webhook_id, posted.timestamp
    is_name = 0 < len(name) <= ID_CHARS_MAX and name.isascii() and name.isprintable() and " " not in name
    is_time = at.isascii() and at.isdecimal() and len(at) < len(str(now_ms))
    is_recent = is_time and abs(int(at) - now_ms // 1000) <= TOLERANCE_S
    if not (is_name and is_recent and VERSION in posted.signature):
        raise Unauthenticated(_REFUSAL)


def check_proof(schedule: Schedule | None, posted: Posted, now_ms: int) -> Schedule:
    """Return the schedule if the well-formed post is authentic. Raises Unauthenticated."""
    hooked = schedule.secrets if schedule is not None and schedule.on_webhook else ()
    secrets = [secret.text for secret in hooked if not secret.ends_at or secret.ends_at > now_ms]
    # Always the maximum number is tried, so that the time does not reveal how many there are.
    tried = (*secrets, *_STRANGER)[:SECRETS_MAX]
    is_proven = is_signed(
        posted.webhook_id, posted.timestamp, posted.payload, posted.signature[:SIGNATURE_CHARS_MAX], tried
    )
    if not (is_proven and secrets) or schedule is None:
        raise Unauthenticated(_REFUSAL)
    return schedule


def check_payload(payload: bytes) -> str:
    """Return the payload as text. Raises InvalidRequest if it is too long, or not JSON."""
    if len(payload) > PAYLOAD_BYTES_MAX:
        raise InvalidRequest.of("payload", f"must have at most {PAYLOAD_BYTES_MAX:,} bytes")
    try:
        msgspec.json.decode(payload)
        return payload.decode()
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise InvalidRequest.of("payload", "must be JSON in UTF-8") from None


def add_post(schedule: Schedule, posted: Posted, payload: str, now_ms: int) -> Schedule:
    """Return the schedule with the post added, which is kept until its run has started.

    Raises:
        QueueFull: Too many posts wait, or this may be a repetition of one no longer remembered.
    """
    signed_at = int(posted.timestamp)
    if signed_at <= schedule.forgotten_at:
        raise QueueFull(f"{TAKEN_MAX} posts were signed after this one; sign it again", retry_after_s=RETRY_AFTER_S)
    if len(schedule.posts) >= POSTS_MAX:
        raise QueueFull(f"{POSTS_MAX} posts wait for their runs; try again later", retry_after_s=RETRY_AFTER_S)
    due_at = find_free_time(schedule, max([now_ms, *(post.due_at + 1 for post in schedule.posts)]))
    times = (*schedule.taken_times, *[0] * len(schedule.taken_ids))
    taken = [(signed_at, posted.webhook_id), *zip(times, schedule.taken_ids, strict=False)]
    taken.sort(key=lambda one: one[0], reverse=True)  # stable: of those of one second the last to come is first
    return replace(
        schedule,
        posts=(*schedule.posts, Post(due_at, posted.webhook_id, payload)),
        taken_ids=tuple(webhook_id for _, webhook_id in taken[:TAKEN_MAX]),
        taken_times=tuple(at for at, _ in taken[:TAKEN_MAX]),
        forgotten_at=max([schedule.forgotten_at, *(at for at, _ in taken[TAKEN_MAX:])]),
    )


def find_free_time(schedule: Schedule, earliest_ms: int) -> int:
    """Return the first time not used by another run, because each time identifies one run."""
    times = {schedule.triggered_at, schedule.next_at, *(post.due_at for post in schedule.posts)}
    times |= {firing.due_at for firing in schedule.firings}
    while earliest_ms in times:
        earliest_ms += 1
    return earliest_ms


def add_secret(schedule: Schedule, secret: str, keep_s: int, now_ms: int) -> Schedule:
    """Return the schedule with a new secret; the previous one stays valid for `keep_s` more."""
    if schedule.secrets and schedule.secrets[0].text == secret:
        return schedule
    old = tuple(replace(one, ends_at=now_ms + keep_s * 1000) for one in schedule.secrets[:1]) if keep_s else ()
    return replace(schedule, secrets=(Secret(secret), *old))
