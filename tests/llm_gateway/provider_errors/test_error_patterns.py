"""Providers' wordings: what they mean, and the numbers that they name. wordings.json has each with its source."""

import json
from pathlib import Path
from typing import Any

import pytest

from services.llm_gateway.provider_errors.error_patterns import ROWS, Row, find_row, parse_window_tokens
from services.llm_gateway.provider_errors.refusal import Refusal, make_error

WORDINGS: list[dict[str, Any]] = json.loads(Path(__file__).with_name("wordings.json").read_text())


def of_reasons(*reasons: str) -> pytest.MarkDecorator:
    cases = [case for case in WORDINGS if case["reason"] in reasons]
    return pytest.mark.parametrize("case", cases, ids=[f"{case['source']}, {case['reason']}" for case in cases])


@of_reasons("CONTEXT_LENGTH_EXCEEDED")
def test_a_full_window_is_recognised_with_its_numbers(case: dict[str, Any]) -> None:
    error = make_error(Refusal("p", "m", 400, case["said"], ""))
    assert error.reason == case["reason"]
    assert parse_window_tokens(case["said"]) == case["tokens"]
    assert case["tokens"].items() <= error.metadata.items()


@of_reasons("CONTENT_FILTERED")
def test_filtered_content_is_recognised(case: dict[str, Any]) -> None:
    for status in (400, 403, 200):
        assert make_error(Refusal("p", "m", status, case["said"], "")).reason == case["reason"]


@of_reasons("RATE_LIMITED", "OVERLOADED", "PROVIDER_AUTHENTICATION")
def test_limits_load_and_keys_are_not_taken_for_full_windows(case: dict[str, Any]) -> None:
    row = find_row(case["said"])
    assert row is not None
    assert row.means.reason == case["reason"]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.vendor)
def test_each_row_is_the_first_that_knows_its_example(row: Row) -> None:
    assert find_row(row.example) is row
    assert row.source.startswith("https://")


@pytest.mark.parametrize(
    "said",
    [
        "max_tokens is too large: 100000. This model supports at most 16384 completion tokens.",
        "Invalid value for 'temperature'.",
        "string_above_max_length Invalid 'messages[3].tool_calls[0].id': string too long. Expected a string with "
        "maximum length 40, but got a string with length 53 instead.",
        "The model `gpt-9` does not exist.",
        "messages.1: `tool_use` ids were found without `tool_result` blocks immediately after: a",
        "",
    ],
)
def test_a_mistake_of_the_caller_is_only_that(said: str) -> None:
    assert make_error(Refusal("p", "m", 400, said, "")).reason == "INVALID_REQUEST"


def test_a_number_without_end_is_no_bug_of_ours() -> None:
    said = f"This model's maximum context length is {'9' * 6000} tokens."
    assert make_error(Refusal("p", "m", 400, said, "")).reason == "CONTEXT_LENGTH_EXCEEDED"


def test_a_413_without_words_is_a_full_window() -> None:
    assert make_error(Refusal("p", "m", 413, "", "")).reason == "CONTEXT_LENGTH_EXCEEDED"


def test_a_full_window_is_recognised_in_what_a_proxy_makes_of_it() -> None:
    said = "litellm.APIConnectionError: Requested token count exceeds the model's maximum context length of 131072"
    error = make_error(Refusal("p", "m", 503, said, ""))
    assert (error.reason, error.metadata["maxTokens"]) == ("CONTEXT_LENGTH_EXCEEDED", "131072")
