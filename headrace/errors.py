"""Errors and their form on the wire: one class per reason.

`code` tells the caller what to do next (the gRPC meaning), `reason` names the problem (also in `run.error`),
and `retriable` tells whether the same request may succeed later. The facades derive HTTP statuses from `code`.

Messages name the rule and the next step, and never contain user content: `InvalidRequest.of("chatId", "must be
a UUID")`.
"""

from __future__ import annotations

import json
import re
from contextlib import suppress
from typing import ClassVar

import grpc
from google.protobuf.any_pb2 import Any
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import DecodeError
from google.rpc import error_details_pb2, status_pb2

from headrace.v1 import common_pb2

DOMAIN = "headrace"
TEXT_CHARS_MAX = 400
"""Maximum length of a message or metadata value on the wire. gRPC sends each twice in headers, with up to 16
bytes per character; over 8 KiB the client gets RESOURCE_EXHAUSTED instead of the error (grpcio 1.85).
"""

_METHOD = re.compile(r"/[\w.]*\.(\w+)/\w+: ")
"""Start of the debug string of our own channels; grpcio's debug strings do not name the method."""

_DETAILS_KEY = "grpc-status-details-bin"
_RETRIABLE_KEY = "retriable"


class HeadraceError(Exception):
    """Base class of errors that a caller can act on; only subclasses are raised."""

    code: ClassVar[grpc.StatusCode]
    reason: ClassVar[str]
    retriable: ClassVar[bool] = False

    def __init__(self, message: str, *, retry_after_s: float | None = None, **metadata: str | int) -> None:
        super().__init__(message)
        self.message = message
        self.retry_after_s = retry_after_s
        """How long to wait before retrying; None if unknown or if a retry does not help."""
        self.metadata = {key: str(value) for key, value in metadata.items()}
        """Ids and numbers, with lowerCamelCase keys."""


class InvalidRequest(HeadraceError):
    """The request breaks a rule; do not send it again unchanged."""

    code = grpc.StatusCode.INVALID_ARGUMENT
    reason = "INVALID_REQUEST"

    @classmethod
    def of(cls, field: str, rule: str) -> InvalidRequest:
        """Return the error for a field, named as in JSON, that breaks a rule."""
        return cls(f"{field}: {rule}", field=field, rule=rule)


class UnpairedMessages(HeadraceError):
    """A tool call without its result, or a result without its call."""

    code = grpc.StatusCode.INVALID_ARGUMENT
    reason = "UNPAIRED_MESSAGES"


class UnknownPlaceholder(HeadraceError):
    """A prompt names a placeholder that does not exist."""

    code = grpc.StatusCode.INVALID_ARGUMENT
    reason = "UNKNOWN_PLACEHOLDER"


class OutOfRange(HeadraceError):
    """The position is beyond the end."""

    code = grpc.StatusCode.OUT_OF_RANGE
    reason = "OUT_OF_RANGE"


class NotFound(HeadraceError):
    """There is no such object, or it is not the caller's."""

    code = grpc.StatusCode.NOT_FOUND
    reason = "NOT_FOUND"


class ChatBusy(HeadraceError):
    """The chat already has an active run; `runId` names it."""

    code = grpc.StatusCode.ABORTED
    reason = "CHAT_BUSY"
    retriable = True


class Held(HeadraceError):
    """A hold prevents the deletion; `holdId` names it, and an operator may release it."""

    code = grpc.StatusCode.FAILED_PRECONDITION
    reason = "HELD"


class Erasing(HeadraceError):
    """The user's data is being erased; new data is refused until the erasure is complete."""

    code = grpc.StatusCode.FAILED_PRECONDITION
    reason = "ERASING"
    retriable = True


class StaleLease(HeadraceError):
    """A later owner has taken the run over."""

    code = grpc.StatusCode.ABORTED
    reason = "STALE_LEASE"


class VersionConflict(HeadraceError):
    """The version in force is not the one that the caller has seen; `version` names it. Read it and decide again."""

    code = grpc.StatusCode.ABORTED
    reason = "VERSION_CONFLICT"


class KeyTaken(HeadraceError):
    """An agent file of the operator already has this key; choose another key."""

    code = grpc.StatusCode.ALREADY_EXISTS
    reason = "KEY_TAKEN"


class Claimed(HeadraceError):
    """Another client is answering this gate; `claimedBy` names it, and `until` is when its claim ends."""

    code = grpc.StatusCode.ABORTED
    reason = "CLAIMED"


class Interrupted(HeadraceError):
    """The service stopped before the run had ended; the chat is valid, so ask again."""

    code = grpc.StatusCode.ABORTED
    reason = "INTERRUPTED"
    retriable = True


class ContextLengthExceeded(HeadraceError):
    """The request is larger than the model's window."""

    code = grpc.StatusCode.FAILED_PRECONDITION
    reason = "CONTEXT_LENGTH_EXCEEDED"


class ContentFiltered(HeadraceError):
    """The provider refused the content."""

    code = grpc.StatusCode.FAILED_PRECONDITION
    reason = "CONTENT_FILTERED"


class ProviderAuthentication(HeadraceError):
    """The provider refused our key, or we have none."""

    code = grpc.StatusCode.FAILED_PRECONDITION
    reason = "PROVIDER_AUTHENTICATION"


class ToolRequired(HeadraceError):
    """The agent's policy requires a tool call and the model made none."""

    code = grpc.StatusCode.FAILED_PRECONDITION
    reason = "TOOL_REQUIRED"


class PlanMissing(HeadraceError):
    """The planner made no plan."""

    code = grpc.StatusCode.FAILED_PRECONDITION
    reason = "PLAN_MISSING"


class SkillUnavailable(HeadraceError):
    """The skill is broken, or its dependencies cannot be installed; `skillId` names it."""

    code = grpc.StatusCode.FAILED_PRECONDITION
    reason = "SKILL_UNAVAILABLE"


class NoAnswer(HeadraceError):
    """The model ended without an answer."""

    code = grpc.StatusCode.FAILED_PRECONDITION
    reason = "NO_ANSWER"


class OutputMismatch(HeadraceError):
    """The model's answer does not match the requested output format."""

    code = grpc.StatusCode.FAILED_PRECONDITION
    reason = "OUTPUT_MISMATCH"
    retriable = True


class ModeUnavailable(HeadraceError):
    """The agent's custom mode has no valid file; the message names the mode."""

    code = grpc.StatusCode.FAILED_PRECONDITION
    reason = "MODE_UNAVAILABLE"


class ModeFailed(HeadraceError):
    """The code of the agent's custom mode raised an exception; `file` and `line` tell the operator where."""

    code = grpc.StatusCode.FAILED_PRECONDITION
    reason = "MODE_FAILED"


class ModeChanged(HeadraceError):
    """The code of the agent's custom mode changed while its run was stopped, and does not match the recorded run."""

    code = grpc.StatusCode.FAILED_PRECONDITION
    reason = "MODE_CHANGED"


class RateLimited(HeadraceError):
    """The provider limits our rate."""

    code = grpc.StatusCode.RESOURCE_EXHAUSTED
    reason = "RATE_LIMITED"
    retriable = True


class QuotaExceeded(HeadraceError):
    """A quota is used up: of a provider account, a budget, an API key or a tenant."""

    code = grpc.StatusCode.RESOURCE_EXHAUSTED
    reason = "QUOTA_EXCEEDED"
    retriable = True


class BudgetExceeded(HeadraceError):
    """The run's budget is used up."""

    code = grpc.StatusCode.RESOURCE_EXHAUSTED
    reason = "BUDGET_EXCEEDED"


class PriceUnknown(HeadraceError):
    """A run with a cost limit tried to call a model without a price."""

    code = grpc.StatusCode.FAILED_PRECONDITION
    reason = "PRICE_UNKNOWN"


class FactsFull(HeadraceError):
    """The maximum number of facts of a user or tenant is reached, and all of them are valid or held."""

    code = grpc.StatusCode.RESOURCE_EXHAUSTED
    reason = "FACTS_FULL"


class QueueFull(HeadraceError):
    """Too many requests are waiting already."""

    code = grpc.StatusCode.RESOURCE_EXHAUSTED
    reason = "QUEUE_FULL"
    retriable = True


class Overloaded(HeadraceError):
    """No capacity now; the same request may succeed later."""

    code = grpc.StatusCode.UNAVAILABLE
    reason = "OVERLOADED"
    retriable = True


class DiskFull(Overloaded):
    """The disk is full; reads continue to work, and writes will once there is space."""

    reason = "DISK_FULL"


class IndexIncomplete(Overloaded):
    """The request needs the index of all chats, which is still being built; chats can be read by id."""

    reason = "INDEX_INCOMPLETE"


class ProviderUnavailable(HeadraceError):
    """The provider, or another service, cannot be reached."""

    code = grpc.StatusCode.UNAVAILABLE
    reason = "PROVIDER_UNAVAILABLE"
    retriable = True


class BadFrame(HeadraceError):
    """The provider's stream cannot be read."""

    code = grpc.StatusCode.UNAVAILABLE
    reason = "BAD_FRAME"
    retriable = True


class StreamStalled(HeadraceError):
    """The provider sent nothing for too long."""

    code = grpc.StatusCode.DEADLINE_EXCEEDED
    reason = "STREAM_STALLED"
    retriable = True


class RemoteUnavailable(HeadraceError):
    """The remote agent cannot be reached or does not answer; `remote` names its host."""

    code = grpc.StatusCode.UNAVAILABLE
    reason = "REMOTE_UNAVAILABLE"
    retriable = True


class RemoteNotAllowed(HeadraceError):
    """The remote agent's address is not allowed, or the agent's file does not name it."""

    code = grpc.StatusCode.FAILED_PRECONDITION
    reason = "REMOTE_NOT_ALLOWED"


class RemoteAuthentication(HeadraceError):
    """The remote agent refused our credential, or we have none."""

    code = grpc.StatusCode.FAILED_PRECONDITION
    reason = "REMOTE_AUTHENTICATION"


class RemoteBadAnswer(HeadraceError):
    """The remote agent's answer is not valid A2A 1.0, or is too large."""

    code = grpc.StatusCode.FAILED_PRECONDITION
    reason = "REMOTE_BAD_ANSWER"


class RemoteFailed(HeadraceError):
    """The remote agent's task failed, was cancelled there, or got no answer to its question; the message says why."""

    code = grpc.StatusCode.FAILED_PRECONDITION
    reason = "REMOTE_FAILED"


class RemoteRejected(HeadraceError):
    """The remote agent rejected the message; the error's message quotes it."""

    code = grpc.StatusCode.FAILED_PRECONDITION
    reason = "REMOTE_REJECTED"


class RemoteOutcomeUnknown(HeadraceError):
    """The remote agent may or may not have received the message, and the caller did not want it sent again."""

    code = grpc.StatusCode.ABORTED
    reason = "REMOTE_OUTCOME_UNKNOWN"


class LogDamaged(HeadraceError):
    """The chat's log is damaged before its end; it can be read but not written."""

    code = grpc.StatusCode.DATA_LOSS
    reason = "LOG_DAMAGED"


class KeyUnavailable(HeadraceError):
    """The encryption key of a tenant's stored data is unavailable; an operator has to restore it."""

    code = grpc.StatusCode.FAILED_PRECONDITION
    reason = "KEY_UNAVAILABLE"


class Unsupported(HeadraceError):
    """This version does not support the operation."""

    code = grpc.StatusCode.UNIMPLEMENTED
    reason = "UNSUPPORTED"


class Unauthenticated(HeadraceError):
    """The credential is missing or wrong."""

    code = grpc.StatusCode.UNAUTHENTICATED
    reason = "UNAUTHENTICATED"


class CredentialEnded(HeadraceError):
    """The credential has ended: an API key was revoked or disabled, a key, token or session expired, or the
    user is suspended. Runs started with it may continue.
    """

    code = grpc.StatusCode.UNAUTHENTICATED
    reason = "CREDENTIAL_ENDED"


class PermissionDenied(HeadraceError):
    """The credential does not allow this."""

    code = grpc.StatusCode.PERMISSION_DENIED
    reason = "PERMISSION_DENIED"


BY_REASON: dict[str, type[HeadraceError]] = {
    cls.reason: cls for cls in (*HeadraceError.__subclasses__(), *Overloaded.__subclasses__())
}


def to_status(error: HeadraceError) -> status_pb2.Status:
    status = status_pb2.Status(code=error.code.value[0], message=_truncate(error.message))
    metadata = {key: _truncate(value) for key, value in error.metadata.items()}
    metadata[_RETRIABLE_KEY] = str(error.retriable).lower()
    info = error_details_pb2.ErrorInfo(reason=error.reason, domain=DOMAIN, metadata=metadata)
    status.details.add().Pack(info)
    if error.retry_after_s is not None:
        delay = Duration()
        delay.FromMilliseconds(round(error.retry_after_s * 1000))
        status.details.add().Pack(error_details_pb2.RetryInfo(retry_delay=delay))
    return status


def to_failure(error: HeadraceError) -> common_pb2.Failure:
    """Return the error in its form for `run.error` and the log."""
    details = json.dumps(error.metadata, ensure_ascii=False, separators=(",", ":")) if error.metadata else None
    return common_pb2.Failure(code=error.reason, message=error.message, retriable=error.retriable, details=details)


def from_status(status: status_pb2.Status) -> HeadraceError | None:
    """Return the error of a status; None for a status that is not ours."""
    info = error_details_pb2.ErrorInfo()
    retry = error_details_pb2.RetryInfo()
    retry_after_s = None
    for detail in status.details:
        if _unpack(detail, retry):
            retry_after_s = retry.retry_delay.ToMilliseconds() / 1000
        else:
            _unpack(detail, info)
    cls = BY_REASON.get(info.reason) if info.domain == DOMAIN else None
    if cls is None:
        return None
    # Sorted, because the map on the wire is unordered and equal errors must give equal bytes.
    metadata = {key: info.metadata[key] for key in sorted(info.metadata) if key != _RETRIABLE_KEY}
    error = cls(status.message, retry_after_s=retry_after_s)
    error.metadata = metadata
    return error


def from_rpc_error(error: grpc.aio.AioRpcError | grpc.Call) -> HeadraceError | None:
    """Return the error raised by the called service; None for a status that is not ours.

    If the service cannot be reached, it is ProviderUnavailable.
    """
    for key, value in error.trailing_metadata() or ():
        if key == _DETAILS_KEY and isinstance(value, bytes):
            with suppress(DecodeError):  # a proxy may have written it
                return from_status(status_pb2.Status.FromString(value))
    if error.code() is grpc.StatusCode.UNAVAILABLE:
        peer = find_peer_name(error) if isinstance(error, grpc.aio.AioRpcError) else "the server"
        return ProviderUnavailable(f"{peer} cannot be reached; try again")
    return None


def find_peer_name(error: grpc.aio.AioRpcError) -> str:
    match = _METHOD.match(error.debug_error_string() or "")
    return match[1] if match else "a service of the suite"


def _truncate(text: str) -> str:
    return text if len(text) <= TEXT_CHARS_MAX else text[: TEXT_CHARS_MAX - 1] + "…"


def _unpack(detail: Any, into: error_details_pb2.ErrorInfo | error_details_pb2.RetryInfo) -> bool:
    return detail.Unpack(into)
