"""Failures in OpenAI's form, {"error":{"message","type","param","code"}}, with our status.

https://platform.openai.com/docs/guides/error-codes (2026-05)
"""

from __future__ import annotations

from typing import Any

import orjson
from aiohttp import web

from headrace.errors import BY_REASON
from headrace.run_states import State
from headrace.v1 import common_pb2
from services.facade.middleware.request_lifecycle import Handler
from services.facade.openai_api.events import RunEnded
from services.facade.responses.envelope import HTTP_STATUS

PREFIX = "/v1/"

BAD_GATEWAY = 502

FROM_BEHIND = frozenset({"PROVIDER_AUTHENTICATION", "NO_ANSWER", "OUTPUT_MISMATCH"})

CODES = {
    "CONTENT_FILTERED": "content_filter",
    "RATE_LIMITED": "rate_limit_exceeded",
    "QUOTA_EXCEEDED": "insufficient_quota",
    "BUDGET_EXCEEDED": "insufficient_quota",
    "UNAUTHENTICATED": "invalid_api_key",
    "INTERNAL": "server_error",
}

AGENT = "agentKey"
"""Our field name for OpenAI's `model`."""

TYPES = {401: "authentication_error", 403: "permission_error", 409: "conflict_error", 429: "rate_limit_error"}


@web.middleware
async def convert_failures(request: web.Request, handler: Handler) -> web.StreamResponse:
    answer = await handler(request)
    if answer.status < 400 or not request.path.startswith(PREFIX) or not isinstance(answer, web.Response):
        return answer
    failure = orjson.loads(answer.body if isinstance(answer.body, bytes) else b"{}")
    error = failure["error"]
    if _is_from_behind(error["code"], error["details"]):
        answer.set_status(BAD_GATEWAY)
        # OpenAI's clients retry a 502 automatically; each retry would start another run that ends the same way.
        answer.headers["x-should-retry"] = "false"
    answer.body = orjson.dumps({"error": build_error(answer.status, error["code"], failure["msg"], error["details"])})
    return answer


def raise_known_error(failure: common_pb2.Failure) -> None:
    """Raise a run's failure if it is one of our errors."""
    if cls := BY_REASON.get(failure.code):
        error = cls(failure.message)
        error.metadata = orjson.loads(failure.details or "{}")
        raise error


def build_end_error(end: RunEnded) -> dict[str, Any] | None:
    """Return the error of a run that has no answer; None if it has one."""
    if end.failure is not None:
        return build_failure_error(end.failure)
    return build_error(499, "CANCELLED", "the run was cancelled", {}) if end.reason == State.CANCELLED else None


def build_failure_error(failure: common_pb2.Failure) -> dict[str, Any]:
    cls = BY_REASON.get(failure.code)
    details = orjson.loads(failure.details or "{}")
    status = HTTP_STATUS[cls.code] if cls else 500
    if _is_from_behind(failure.code, details):
        status = BAD_GATEWAY
    return build_error(status, failure.code, failure.message, details)


def map_code(reason: str, details: dict[str, Any]) -> str:
    if reason == "NOT_FOUND" and ("model" in details or details.get("field") == AGENT):
        return "model_not_found"
    return CODES.get(reason, reason.lower())


def _is_from_behind(reason: str, details: dict[str, Any]) -> bool:
    """Return whether the caller is not at fault, but the provider, its model, or our request to it."""
    return reason in FROM_BEHIND or (reason == "INVALID_REQUEST" and "provider" in details)


def build_error(status: int, reason: str, message: str, details: dict[str, Any]) -> dict[str, Any]:
    kind = TYPES.get(status, "server_error" if status >= 500 else "invalid_request_error")
    param = details.get("field")
    param = "model" if param == AGENT else param
    return {"message": message, "type": kind, "param": param, "code": map_code(reason, details)}
