"""Built-in facts about models."""

import tomllib
from pathlib import Path
from typing import get_args

import pytest
from structlog.testing import capture_logs

from services.llm_gateway.providers.provider_file import Unsupported
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
        ("Qwen/Qwen3-8B", 131_072, None),
        ("gpt-5.4-mini-2026-03-17", 400_000, "o200k_base"),
        ("ft:gpt-4o-2024-08-06", 128_000, "o200k_base"),
        ("eu.anthropic.claude-opus-4-7-v1:0", 1_000_000, None),
        ("anthropic/claude-opus-4.7", 1_000_000, None),
        ("global.amazon.nova-2-lite-v1:0", 1_000_000, None),
        ("us-gov.anthropic.claude-sonnet-4-5-20250929-v1:0", 200_000, None),
        ("anthropic/claude-sonnet-4-5", 200_000, None),
    ],
)
def test_the_longest_matching_name_is_used(model: str, window: int, encoding: str | None) -> None:
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


def test_every_row_has_a_source_and_only_words_of_the_provider_file() -> None:
    path = Path(__file__).parents[3] / "services/runtime/tokens/models.toml"
    vendors = tomllib.loads(path.read_text())["vendor"]
    assert len(vendors) >= 10
    assert all(vendor["source"].startswith("https://") and vendor["date"] for vendor in vendors)
    rows = [row for vendor in vendors for row in vendor["models"].values()]
    assert {word for row in rows for word in row.get("unsupported", ())} <= {*get_args(Unsupported)}
