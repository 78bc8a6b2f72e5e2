"""The built-in facts about models."""

from __future__ import annotations

import pytest
from structlog.testing import capture_logs

from services.runtime.tokens.model_table import UNKNOWN, facts, known_facts


@pytest.mark.parametrize(
    ("model", "window", "encoding"),
    [
        ("gpt-4", 8_192, "cl100k_base"),
        ("gpt-4-32k-0613", 32_768, "cl100k_base"),
        ("gpt-4-turbo-2024-04-09", 128_000, "cl100k_base"),
        ("gpt-4o-mini", 128_000, "o200k_base"),
        ("gpt-4.1-nano", 1_047_576, "o200k_base"),
        ("o3-mini", 200_000, "o200k_base"),
        ("openai/gpt-5", 400_000, "o200k_base"),
        ("qwen-7b-chat", 8_192, None),
        ("qwen-max", 32_768, None),
        ("Qwen/Qwen2.5-72B-Instruct", 131_072, None),
        ("qwen3-max-preview", 262_144, None),
        ("deepseek-coder", 65_536, None),
        ("deepseek-ai/DeepSeek-V3.2", 131_072, None),
        ("anthropic/claude-sonnet-4-5", 200_000, None),
    ],
)
def test_the_longest_name_that_fits_answers(model: str, window: int, encoding: str | None) -> None:
    known = known_facts(model)
    assert known is not None
    assert (known.context_window, known.encoding) == (window, encoding)


def test_every_window_leaves_room_for_a_request() -> None:
    for model in ("gpt-4", "gpt-3.5-turbo", "qwen-7b", "claude-3-7-sonnet", "unheard-of"):
        assert facts(model).max_output <= facts(model).context_window // 2


def test_an_unknown_model_gets_a_small_window_and_one_warning() -> None:
    with capture_logs() as lines:
        assert facts("my-own-model") == facts("my-own-model") == UNKNOWN
    assert [(line["log_level"], line["model"]) for line in lines] == [("warning", "my-own-model")]
    assert known_facts("my-own-model") is None
