"""The error classes match the table of the HTTP contract and survive a round trip over the wire."""

import grpc
import pytest
from google.rpc import error_details_pb2, status_pb2

from headrace import errors
from headrace.errors import BY_REASON, HeadraceError, InvalidRequest, from_rpc_error, from_status, to_failure, to_status

Code = grpc.StatusCode

TABLE = {
    Code.INVALID_ARGUMENT: "INVALID_REQUEST UNPAIRED_MESSAGES UNKNOWN_PLACEHOLDER",
    Code.NOT_FOUND: "NOT_FOUND",
    Code.OUT_OF_RANGE: "OUT_OF_RANGE",
    Code.ABORTED: "CHAT_BUSY STALE_LEASE CLAIMED INTERRUPTED VERSION_CONFLICT REMOTE_OUTCOME_UNKNOWN",
    Code.ALREADY_EXISTS: "KEY_TAKEN",
    Code.FAILED_PRECONDITION: "CONTEXT_LENGTH_EXCEEDED CONTENT_FILTERED PROVIDER_AUTHENTICATION TOOL_REQUIRED"
    " PLAN_MISSING SKILL_UNAVAILABLE NO_ANSWER OUTPUT_MISMATCH PRICE_UNKNOWN MODE_UNAVAILABLE MODE_FAILED MODE_CHANGED"
    " HELD ERASING KEY_UNAVAILABLE"
    " REMOTE_AUTHENTICATION REMOTE_BAD_ANSWER REMOTE_FAILED REMOTE_NOT_ALLOWED REMOTE_REJECTED",
    Code.RESOURCE_EXHAUSTED: "RATE_LIMITED QUOTA_EXCEEDED BUDGET_EXCEEDED QUEUE_FULL FACTS_FULL",
    Code.UNAVAILABLE: "OVERLOADED DISK_FULL INDEX_INCOMPLETE PROVIDER_UNAVAILABLE BAD_FRAME REMOTE_UNAVAILABLE",
    Code.DEADLINE_EXCEEDED: "STREAM_STALLED",
    Code.DATA_LOSS: "LOG_DAMAGED",
    Code.UNIMPLEMENTED: "UNSUPPORTED",
    Code.UNAUTHENTICATED: "UNAUTHENTICATED CREDENTIAL_ENDED",
    Code.PERMISSION_DENIED: "PERMISSION_DENIED",
}
CLASSES = sorted(BY_REASON.values(), key=lambda cls: cls.reason)

each_class = pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.reason)


def rpc_error(code: grpc.StatusCode, status: status_pb2.Status | None = None) -> grpc.aio.AioRpcError:
    details = [("grpc-status-details-bin", status.SerializeToString())] if status else []
    return grpc.aio.AioRpcError(code, grpc.aio.Metadata(), grpc.aio.Metadata(*details))


def test_every_reason_has_the_contracts_status_code() -> None:
    expected = {reason: code for code, reasons in TABLE.items() for reason in reasons.split()}
    assert {reason: cls.code for reason, cls in BY_REASON.items()} == expected


def test_no_two_classes_share_a_reason() -> None:
    assert len(BY_REASON) == sum(len(cls.__subclasses__()) for cls in (HeadraceError, *HeadraceError.__subclasses__()))


@each_class
def test_a_class_is_well_formed(cls: type[HeadraceError]) -> None:
    assert cls.__doc__
    assert cls.reason.replace("_", "").isalpha()
    assert cls.reason.isupper()
    assert cls.__name__ == cls.reason.replace("_", " ").title().replace(" ", "")
    assert getattr(errors, cls.__name__) is cls


@each_class
def test_an_error_survives_the_wire_unchanged(cls: type[HeadraceError]) -> None:
    sent = cls("what 水 happened", retry_after_s=2.25, runId="r-1", maxTokens=8192)
    status = to_status(sent)
    for back in (from_status(status), from_rpc_error(rpc_error(cls.code, status))):
        assert back is not None
        assert type(back) is cls
        assert (back.message, str(back)) == ("what 水 happened", "what 水 happened")
        assert back.metadata == {"runId": "r-1", "maxTokens": "8192"}
        assert back.retry_after_s == 2.25


@each_class
def test_the_status_details_state_whether_a_retry_may_help(cls: type[HeadraceError]) -> None:
    info = error_details_pb2.ErrorInfo()
    (detail,) = to_status(cls("m")).details
    assert detail.Unpack(info)
    assert (info.reason, info.domain) == (cls.reason, "headrace")
    assert info.metadata["retriable"] == ("true" if cls.retriable else "false")


def test_a_long_text_is_truncated_with_an_ellipsis() -> None:
    back = from_status(to_status(InvalidRequest("水" * 401, field="x" * 401, rule="y" * 400)))
    assert back is not None
    assert back.message == "水" * 399 + "…"
    assert back.metadata == {"field": "x" * 399 + "…", "rule": "y" * 400}


def test_a_rule_of_a_field_names_both() -> None:
    error = InvalidRequest.of("references[0].id", "is required")
    assert error.message == "references[0].id: is required"
    assert error.metadata == {"field": "references[0].id", "rule": "is required"}


def test_a_failure_carries_the_reason_and_the_ids_as_json() -> None:
    failure = to_failure(errors.ContextLengthExceeded("too long", maxTokens=8192))
    assert (failure.code, failure.message, failure.retriable) == ("CONTEXT_LENGTH_EXCEEDED", "too long", False)
    assert failure.details == '{"maxTokens":"8192"}'
    assert not to_failure(errors.Overloaded("m")).HasField("details")


def foreign(reason: str, domain: str) -> status_pb2.Status:
    status = status_pb2.Status(code=Code.UNAVAILABLE.value[0], message="theirs")
    status.details.add().Pack(error_details_pb2.ErrorInfo(reason=reason, domain=domain))
    return status


@pytest.mark.parametrize(
    "status",
    [
        status_pb2.Status(code=5, message="no details"),
        foreign("OVERLOADED", "googleapis.com"),
        foreign("A_REASON_OF_TOMORROW", "headrace"),
    ],
)
def test_a_foreign_status_is_not_decoded(status: status_pb2.Status) -> None:
    assert from_status(status) is None
    assert from_rpc_error(rpc_error(Code.UNAVAILABLE, status)) is None


def test_details_that_cannot_be_read_do_not_hide_the_status() -> None:
    trailers = grpc.aio.Metadata(("grpc-status-details-bin", b"\xff\xff"))
    for code, expected in ((Code.UNAVAILABLE, errors.ProviderUnavailable), (Code.INTERNAL, type(None))):
        assert isinstance(from_rpc_error(grpc.aio.AioRpcError(code, grpc.aio.Metadata(), trailers)), expected)


def test_only_the_code_unavailable_becomes_provider_unavailable() -> None:
    assert isinstance(from_rpc_error(rpc_error(Code.UNAVAILABLE)), errors.ProviderUnavailable)
    others = [code for code in Code if code is not Code.UNAVAILABLE]
    assert [from_rpc_error(rpc_error(code)) for code in others] == [None] * len(others)
