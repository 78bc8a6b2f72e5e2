"""Providers' wordings, one case each with its source: what they mean, and the numbers that they name."""

from __future__ import annotations

import pytest

from services.llm_gateway.provider_errors.error_patterns import match_error_class, parse_window_tokens
from services.llm_gateway.provider_errors.refusal import Refusal, make_error

OVERFLOWS: list[tuple[str, str, dict[str, str]]] = [
    (
        "OpenAI, webtimemachine/wtm2#579",
        "This model's maximum context length is 128000 tokens. However, your messages resulted in 204308 tokens. "
        "Please reduce the length of the messages.",
        {"maxTokens": "128000", "currentTokens": "204308"},
    ),
    ("OpenAI, Responses API", "Your input exceeds the context window of this model. Please adjust your input.", {}),
    (
        "Azure OpenAI and completions, hwchase17/chat-your-data#10",
        "This model's maximum context length is 4097 tokens, however you requested 4231 tokens (3975 in your prompt; "
        "256 for the completion). Please reduce your prompt; or completion length.",
        {"maxTokens": "4097", "currentTokens": "4231"},
    ),
    (
        "vLLM, vllm-project/vllm#20409",
        "This model's maximum context length is 16384 tokens. However, you requested 122946 tokens (112946 in the "
        "messages, 10000 in the completion). Please reduce the length of the messages or completion.",
        {"maxTokens": "16384", "currentTokens": "122946"},
    ),
    (
        "vLLM, limit on the answer",
        "'max_tokens' or 'max_completion_tokens' is too large: 2000. This model's maximum context length is 4096 "
        "tokens and your request has 2104 input tokens (2000 > 4096 - 2104).",
        {"maxTokens": "4096", "currentTokens": "4104"},
    ),
    (
        "Anthropic",
        "prompt is too long: 213462 tokens > 200000 maximum",
        {"maxTokens": "200000", "currentTokens": "213462"},
    ),
    (
        "Anthropic, limit on the answer",
        "input length and `max_tokens` exceed context limit: 197202 + 21333 > 200000, decrease input length or "
        "`max_tokens` and try again",
        {"maxTokens": "200000", "currentTokens": "218535"},
    ),
    ("Anthropic, 413", "request_too_large Request exceeds the maximum size", {}),
    (
        "Bailian, QwenLM/qwen-code#98",
        "<400> InternalError.Algo.InvalidParameter: Range of input length should be [1, 204800]",
        {"maxTokens": "204800"},
    ),
    (
        "DeepSeek, as OpenAI",
        "This model's maximum context length is 131072 tokens. However, you requested 351430 tokens (343238 in the "
        "messages, 8192 in the completion).",
        {"maxTokens": "131072", "currentTokens": "351430"},
    ),
    (
        "SiliconFlow, langgenius/dify#19394",
        "length of prompt_tokens (57535) must be less than max_seq_len (32768)",
        {"maxTokens": "32768", "currentTokens": "57535"},
    ),
    (
        "OpenRouter, OpenHands/OpenHands#9937",
        "This endpoint's maximum context length is 131072 tokens. However, you requested about 138956 tokens (7884 of "
        "text input, 131072 in the output). Please reduce the length of either one.",
        {"maxTokens": "131072", "currentTokens": "138956"},
    ),
    # The number is the error's code: MiniMax-AI/MiniMax-M2#119.
    ("MiniMax, MiniMax-AI/MiniMax-M2#119", "invalid params, context window exceeds limit (2013)", {}),
    (
        "Gemini, google-gemini/gemini-cli#6678",
        "The input token count (1200293) exceeds the maximum number of tokens allowed (1048576).",
        {"maxTokens": "1048576", "currentTokens": "1200293"},
    ),
    (
        "llama.cpp, ggml-org/llama.cpp#15780",
        "exceed_context_size_error the request exceeds the available context size. try increasing the context size or "
        "enable context shift",
        {},
    ),
    (
        "llama.cpp, later",
        "request (14429 tokens) exceeds the available context size (8192 tokens), try increasing it",
        {"maxTokens": "8192", "currentTokens": "14429"},
    ),
    ("Ollama", "prompt too long; exceeded max context length by 100918 tokens", {}),
    (
        "Moonshot",
        "Invalid request: Your request exceeded model token limit: 256000 (requested: 300000)",
        {"maxTokens": "256000", "currentTokens": "300000"},
    ),
    (
        "Mistral",
        "Prompt contains 200000 tokens, too large for model with 131072 maximum context length",
        {"maxTokens": "131072", "currentTokens": "200000"},
    ),
    (
        "xAI",
        "This model's maximum prompt length is 131072 but the request contains 537812 tokens.",
        {"maxTokens": "131072", "currentTokens": "537812"},
    ),
    ("Groq", "Please reduce the length of the messages or completion.", {}),
    (
        "Together",
        "The input (516368 tokens) is longer than the model's context length (262144 tokens).",
        {"maxTokens": "262144", "currentTokens": "516368"},
    ),
]
FILTERED = [
    ("OpenAI", "content_policy_violation Your request was rejected as a result of our safety system."),
    ("OpenAI, reasoning", "Invalid prompt: your prompt was flagged as potentially violating our usage policy."),
    (
        "Azure OpenAI, openai/openai-python#331",
        "The response was filtered due to the prompt triggering Azure OpenAI's content management policy.",
    ),
    ("Azure OpenAI, code", "content_filter"),
    ("Bailian, code", "data_inspection_failed"),
    ("Bailian, older code", "DataInspectionFailed Input data may contain inappropriate content."),
    ("DeepSeek, 666ghj/BettaFish#108", "invalid_request_error Content Exists Risk"),
    ("MiniMax, MiniMax-AI/cli#256", "output new_sensitive"),
    ("one-api relays, openai/openai-cookbook#1224", "sensitive_words_detected input contains sensitive words: [test]"),
    ("Anthropic", "Output blocked by content filtering policy"),
    ("OpenRouter, 403", "Your chosen model requires moderation and your input was flagged for violence."),
]
OTHERS = [
    ("Bedrock", "Throttling error: Too many tokens, please wait before trying again.", "RATE_LIMITED"),
    ("OpenAI", "Request too large for gpt-4o on tokens per min (TPM): Limit 30000, Requested 40000.", "RATE_LIMITED"),
    ("Bailian", "Throttling.RateQuota Requests rate limit exceeded, please try again later.", "RATE_LIMITED"),
    ("Anthropic", "overloaded_error Overloaded", "OVERLOADED"),
    ("SiliconFlow", "System is too busy now. Please try again later.", "OVERLOADED"),
    ("Gemini", "API key not valid. Please pass a valid API key.", "PROVIDER_AUTHENTICATION"),
]


@pytest.mark.parametrize(("source", "said", "tokens"), OVERFLOWS, ids=[source for source, _, _ in OVERFLOWS])
def test_a_full_window_is_recognised_with_its_numbers(source: str, said: str, tokens: dict[str, str]) -> None:
    error = make_error(Refusal("p", "m", 400, said, ""))
    assert error.reason == "CONTEXT_LENGTH_EXCEEDED", source
    assert parse_window_tokens(said) == tokens
    assert tokens.items() <= error.metadata.items()


@pytest.mark.parametrize(("source", "said"), FILTERED, ids=[source for source, _ in FILTERED])
def test_filtered_content_is_recognised(source: str, said: str) -> None:
    for status in (400, 403, 200):
        assert make_error(Refusal("p", "m", status, said, "")).reason == "CONTENT_FILTERED", source


@pytest.mark.parametrize(
    ("source", "said", "reason"), OTHERS, ids=[f"{source}, {reason}" for source, _, reason in OTHERS]
)
def test_limits_load_and_keys_are_not_taken_for_full_windows(source: str, said: str, reason: str) -> None:
    cls = match_error_class(said)
    assert cls is not None, source
    assert cls.reason == reason


@pytest.mark.parametrize(
    "said",
    [
        "max_tokens is too large: 100000. This model supports at most 16384 completion tokens.",
        "Invalid value for 'temperature'.",
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
