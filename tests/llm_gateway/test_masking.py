"""What is masked, what is not, and that it takes no time."""

from __future__ import annotations

import time

import pytest

from services.llm_gateway.masking import masked


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Authorization: Bearer abc.def", "Authorization: ***"),
        ('{"api_key": "abc", "n": 1}', '{"api_key": "***", "n": 1}'),
        ("x-api-key=abc; client_secret='abc'", "x-api-key=***; client_secret='***'"),
        ("Incorrect API key provided: sk-abcd1234*****.", "Incorrect API key provided: ***."),
        ("you used 30 tokens: too many", "you used 30 tokens: too many"),
        ("a password is needed", "a password is needed"),
    ],
)
def test_masks_values_of_telling_names_and_bare_keys(text: str, expected: str) -> None:
    assert masked(text) == expected


def test_masks_a_given_secret_wherever_it_stands() -> None:
    assert masked("key my-key-1 (my-key-1)", "my-key-1", "") == "key *** (***)"


@pytest.mark.parametrize("text", ["x" * 1_000_000, "token" * 200_000, "token " * 150_000, "sk-" * 300_000])
def test_a_mebibyte_is_masked_in_linear_time(text: str) -> None:
    started = time.process_time()
    masked(text)
    assert time.process_time() - started < 2.0
