"""Providers' error messages: their meaning, and the numbers they contain. wordings.json has each with its source."""

import json
from pathlib import Path
from typing import Any

import pytest

from services.llm_gateway.provider_errors.error_patterns import ROWS, Row, find_row, parse_window_tokens
from services.llm_gateway.provider_errors.refusal import (
    ACCOUNT,
    EMPTY,
    ErrorObject,
    Refusal,
    make_error,
    read_refusal,
    read_stream_error,
)

WORDINGS: list[dict[str, Any]] = json.loads(Path(__file__).with_name("wordings.json").read_text())


def of_reasons(*reasons: str) -> pytest.MarkDecorator:
    cases = [case for case in WORDINGS if case["reason"] in reasons]
    return pytest.mark.parametrize("case", cases, ids=[f"{case['source']}, {case['reason']}" for case in cases])


@of_reasons("CONTEXT_LENGTH_EXCEEDED")
def test_a_full_context_window_is_recognised_with_its_token_counts(case: dict[str, Any]) -> None:
    error = make_error(Refusal("p", "m", 400, case["said"], ""))
    assert error.reason == case["reason"]
    assert parse_window_tokens(case["said"]) == case["tokens"]
    assert case["tokens"].items() <= error.metadata.items()


@of_reasons("CONTENT_FILTERED")
def test_filtered_content_is_recognised(case: dict[str, Any]) -> None:
    for status in (400, 403, 200):
        assert make_error(Refusal("p", "m", status, case["said"], "")).reason == case["reason"]


@of_reasons("RATE_LIMITED", "OVERLOADED", "PROVIDER_AUTHENTICATION")
def test_rate_limits_overload_and_key_errors_are_not_full_windows(case: dict[str, Any]) -> None:
    row = find_row(case["said"])
    assert row is not None
    assert row.means.reason == case["reason"]


@pytest.mark.parametrize(
    ("status", "message"),
    [
        (
            403,
            "permission-denied Your team has used all available credits or reached its monthly spending limit.",
        ),
        (
            429,
            "RESOURCE_EXHAUSTED Your prepayment credits are depleted. Please go to AI Studio.",
        ),
        (429, "1113 余额不足或无可用资源包,请充值。"),
        (403, "30001 Sorry, your account balance is insufficient"),
        (403, "AccountOverdueError The request failed because your account has an overdue balance."),
        (400, "You have insufficient credits to make this request. Please purchase more credits."),
        (400, "billing_hard_limit_reached Billing hard limit has been reached"),
        (400, "budget_exceeded Budget has been exceeded! Current cost: 10.02, Max budget: 10.0"),
        (403, "Key limit exceeded (total limit). Manage it using https://openrouter.ai/settings/keys"),
        (403, "insufficient_user_quota user quota is not enough (request id: 2024040323172594066980027391365)"),
        (403, "new_api_error 预扣费额度失败, 用户剩余额度: ＄0.01, 需要预扣费额度: ＄0.02"),
        (403, "NOT_ENOUGH_BALANCE not enough balance"),
        (429, "billing_not_active Your account is not active, please check your billing details on our website."),
        (403, "AllocationQuota.FreeTierOnly The free tier of the model has been exhausted."),
        (400, "invalid_request_error You're out of extra usage. Add more at claude.ai/settings/usage and keep going."),
        (429, "1308 Usage limit reached for 5 hour. Your limit will reset at 2026-09-09 05:38:28"),
        (429, "1308 已达到 5 小时的使用上限。您的限额将在 2026-12-01 10:00:00 重置。"),
        (429, "1310 [1310][Weekly/Monthly Limit Exhausted. Your limit will reset at 2026-07-14 07:49:08]"),
        (403, "permission_error You've reached your weekly (7-day) usage limit. Your quota will reset on Monday."),
        (412, "Account acme is suspended, possibly due to reaching the monthly spending limit."),
    ],
)
def test_an_empty_account_is_recognised_for_failover(status: int, message: str) -> None:
    error = make_error(Refusal("p", "m", status, message, ""))
    assert (error.reason, error.metadata.get(ACCOUNT)) == ("PROVIDER_AUTHENTICATION", EMPTY)


@pytest.mark.parametrize(
    ("status", "message", "reason"),
    [
        (498, "capacity_exceeded Flex tier capacity exceeded", "OVERLOADED"),
        (499, "CANCELLED The operation was cancelled.", "PROVIDER_UNAVAILABLE"),
        (403, "Access to the chat endpoint is denied.", "PROVIDER_AUTHENTICATION"),
        (403, "permission_error You have reached the concurrent request limit of your plan.", "RATE_LIMITED"),
        (429, "Online prediction concurrent requests quota exceeded", "RATE_LIMITED"),
        (500, "server_error context shift is disabled", "CONTEXT_LENGTH_EXCEEDED"),
        (
            200,
            "1004 login fail: Please carry the API secret key in the 'Authorization' field",
            "PROVIDER_AUTHENTICATION",
        ),
        (400, "json_validate_failed Failed to generate JSON. Please adjust your prompt.", "PROVIDER_UNAVAILABLE"),
        (
            400,
            "output_parse_failed Parsing failed. The model generated output that could not be parsed.",
            "PROVIDER_UNAVAILABLE",
        ),
        (400, "max_tokens must be at least 1, got -46771. (parameter=max_tokens)", "CONTEXT_LENGTH_EXCEEDED"),
        *(
            (status, "Request too large for m on tokens per minute (TPM)", "CONTEXT_LENGTH_EXCEEDED")
            for status in (413, 429)
        ),
    ],
)
def test_a_rare_status_has_its_reason(status: int, message: str, reason: str) -> None:
    assert make_error(Refusal("p", "m", status, message, "")).reason == reason


@pytest.mark.parametrize(
    ("message", "wait_s"),
    [
        ("Rate limit reached for gpt-5 (TPM): Limit 30000, Used 29000. Please try again in 1.898s. Visit …", 1.898),
        ("Rate limit reached. Please try again in 28ms.", 0.028),
        ("Rate limit reached for requests per day. Please try again in 7m12s.", 432.0),
        ("Please try again in 1h2m3.5s.", 3723.5),
        ("Requests have exceeded call rate limit. Please retry after 12 seconds.", 12.0),
        ("You exceeded your current quota. Please retry in 34.07s.", 34.07),
        ("Please retry after 5 minutes.", 300.0),
        ("Please try again in 1 hour, 2 minutes and 30 seconds.", 3750.0),
        ("Please wait 30 seconds before you send another request.", 30.0),
        ("Too many requests. Please try again later.", None),
        ("Too many requests. Please try again in a few minutes.", None),
    ],
)
@pytest.mark.parametrize("is_in_stream", [False, True])
def test_a_wait_stated_only_in_the_message_is_parsed(*, message: str, wait_s: float | None, is_in_stream: bool) -> None:
    body = json.dumps({"error": {"message": message, "code": "rate_limit_exceeded"}}).encode()
    refusal = read_refusal("p", "m", 429, {}, body, "https://p/v1")
    if is_in_stream:
        refusal = read_stream_error("p", "m", ErrorObject(message, code="rate_limit_exceeded"))
    assert make_error(refusal).retry_after_s == wait_s


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.vendor)
def test_each_row_is_the_first_to_match_its_example(row: Row) -> None:
    assert find_row(row.example) is row
    assert row.source.startswith("https://")


@pytest.mark.parametrize(
    "message",
    [
        "max_tokens is too large: 100000. This model supports at most 16384 completion tokens.",
        "Invalid value for 'temperature'.",
        "ValidationException The maximum tokens you requested exceed the model limit of 4096. Try again with a maximum "
        "tokens value lower than 4096.",
        "invalid_request_error max_tokens (65536) exceeds the model's maximum output tokens 8192",
        "invalid_request_error messages.6.content.0.image.source.base64: image exceeds 5 MB maximum: 6291456 bytes > "
        "5242880 bytes",
        "string_above_max_length Invalid 'messages[3].tool_calls[0].id': string too long. Expected a string with "
        "maximum length 40, but got a string with length 53 instead.",
        "The model `gpt-9` does not exist.",
        "messages.1: `tool_use` ids were found without `tool_result` blocks immediately after: a",
        "",
    ],
)
def test_a_callers_mistake_is_an_invalid_request(message: str) -> None:
    assert make_error(Refusal("p", "m", 400, message, "")).reason == "INVALID_REQUEST"


def test_a_number_of_thousands_of_digits_is_handled() -> None:
    message = f"This model's maximum context length is {'9' * 6000} tokens."
    assert make_error(Refusal("p", "m", 400, message, "")).reason == "CONTEXT_LENGTH_EXCEEDED"


def test_a_413_without_a_message_is_a_full_window() -> None:
    assert make_error(Refusal("p", "m", 413, "", "")).reason == "CONTEXT_LENGTH_EXCEEDED"


def test_a_full_window_is_recognised_in_a_proxys_wrapped_error() -> None:
    message = "litellm.APIConnectionError: Requested token count exceeds the model's maximum context length of 131072"
    error = make_error(Refusal("p", "m", 503, message, ""))
    assert (error.reason, error.metadata["maxTokens"]) == ("CONTEXT_LENGTH_EXCEEDED", "131072")
