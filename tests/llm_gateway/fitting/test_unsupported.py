"""Fields that a model does not support are not sent to it."""

from typing import Any

import pytest

from headrace.v1 import llm_pb2
from tests.support.llm_gateway.conversation import TOOL, read_body
from tests.support.llm_gateway.gateway import Asking

ON = llm_pb2.Reasoning(enabled=True, effort="LOW")
OFF = llm_pb2.Reasoning(enabled=False)
TOOLS: dict[str, Any] = {"tools": [TOOL]}
FORCED = TOOLS | {"tool_choice": "required"}
SAMPLING = {"temperature": 0.5, "top_p": 0.9}


@pytest.mark.parametrize(
    ("model", "fields", "wishes", "sent"),
    [
        ("o3-mini", {}, SAMPLING | TOOLS | {"parallel_tool_calls": True}, {}),
        ("gpt-4o", {}, SAMPLING, {"temperature": 0.5, "top_p": 0.9}),
        ("gpt-5.2", {}, SAMPLING | {"reasoning": ON}, {"reasoning_effort": "low"}),
        ("gpt-5.2", {}, SAMPLING, {"temperature": 0.5, "top_p": 0.9}),
        ("gpt-5.6-luna", {}, TOOLS | {"reasoning": ON}, {}),
        ("gpt-5.6-luna", {}, {"reasoning": ON}, {"reasoning_effort": "low"}),
        ("openai/gpt-6-sol", {}, SAMPLING | TOOLS | {"reasoning": ON}, {}),
        (
            "qwen3.5-plus",
            {"reasoning": "enable_thinking"},
            FORCED,
            {"tool_choice": "required", "enable_thinking": False},
        ),
        (
            "deepseek-v4-pro",
            {"reasoning": "thinking"},
            FORCED | {"reasoning": ON},
            {"tool_choice": "required", "thinking": {"type": "disabled"}},
        ),
        ("deepseek-reasoner", {"reasoning": "thinking"}, FORCED, {"tool_choice": "auto"}),
        ("glm-5.3", {"reasoning": "thinking"}, FORCED | {"reasoning": OFF}, {"tool_choice": "auto"}),
        ("kimi-k2.6", {}, {"temperature": 0.5}, {}),
        ("grok-4-0709", {}, {"reasoning": ON}, {}),
        ("claude-opus-4-7", {"protocol": "anthropic"}, SAMPLING, {}),
        (
            "us.anthropic.claude-opus-4-7-v1:0",
            {"protocol": "anthropic"},
            {"temperature": 0.5, "reasoning": ON, "max_tokens": 4096},
            {"thinking": {"type": "adaptive", "display": "summarized"}, "output_config": {"effort": "low"}},
        ),
        ("claude-opus-4.7", {"protocol": "anthropic"}, {"reasoning": OFF}, {}),
        ("claude-opus-5-5", {"protocol": "anthropic"}, FORCED, {"tool_choice": {"type": "auto"}}),
        (
            "claude-opus-5",
            {"protocol": "anthropic"},
            FORCED | {"reasoning": ON},
            {"tool_choice": {"type": "any"}, "thinking": {"type": "disabled"}},
        ),
        ("claude-haiku-5-5", {"protocol": "anthropic"}, {"reasoning": OFF}, {"thinking": {"type": "disabled"}}),
        (
            "claude-sonnet-5",
            {"protocol": "anthropic", "capabilities": ["tools"]},
            FORCED,
            {"tool_choice": {"type": "any"}, "thinking": {"type": "disabled"}},
        ),
        ("claude-sonnet-5", {"protocol": "anthropic", "capabilities": ["tools"]}, TOOLS | {"reasoning": ON}, {}),
        (
            "claude-sonnet-4-6",
            {"protocol": "anthropic", "reasoning": "adaptive"},
            {"temperature": 0.5, "reasoning": OFF},
            {"temperature": 0.5, "thinking": {"type": "disabled"}},
        ),
        ("claude-sonnet-4-5", {"protocol": "anthropic"}, FORCED, {"tool_choice": {"type": "any"}}),
    ],
)
async def test_a_known_model_receives_only_the_fields_it_supports(
    asking: Asking, model: str, fields: dict[str, Any], wishes: dict[str, Any], sent: dict[str, Any]
) -> None:
    capabilities = fields.get("capabilities", ["tools", "reasoning"])
    models = [{"name": model, "capabilities": capabilities}]
    fields = {name: value for name, value in fields.items() if name != "capabilities"}
    async with asking([{"steps": [{"content": ["hello"]}]}], models=models, **fields) as gateway:
        body = await read_body(gateway, model=model, **wishes)
    always = {"model", "messages", "stream", "stream_options", "max_tokens", "tools"}
    assert {name: value for name, value in body.items() if name not in always} == sent


async def test_the_provider_entry_overrides_the_built_in_table(asking: Asking) -> None:
    models = [{"name": "o3", "unsupported": []}, {"name": "mine", "unsupported": ["temperature"]}]
    async with asking([{"steps": [{"content": ["hello"]}]}], models=models) as gateway:
        for model, sent in (("o3", 0.5), ("mine", None)):
            body = await read_body(gateway, model=model, temperature=0.5)
            assert body.get("temperature") == sent


async def test_a_tool_that_cannot_be_forced_by_name_is_the_only_one_offered(asking: Asking) -> None:
    models = [{"name": "sim-1", "unsupported": ["tool_choice_by_name"]}]
    tools = [TOOL, llm_pb2.ToolSchema(name="g")]
    async with asking([{"steps": [{"content": ["hello"]}]}], models=models) as gateway:
        body = await read_body(gateway, tools=tools, tool_choice="g")
        assert (body["tool_choice"], [tool["function"]["name"] for tool in body["tools"]]) == ("required", ["g"])
        body = await read_body(gateway, tools=tools, tool_choice="required")
        assert (body["tool_choice"], len(body["tools"])) == ("required", 2)
