"""The forms of `reasoning` in protocol `openai`."""

# As of 2026-11:
#
# - `reasoning_effort`: https://platform.openai.com/docs/guides/reasoning
# - `enable_thinking`: Bailian, https://help.aliyun.com/zh/model-studio/deep-thinking, and SiliconFlow,
#   https://docs.siliconflow.cn/cn/userguide/capabilities/reasoning
# - `thinking`: https://api-docs.deepseek.com/guides/thinking_mode; a turn with calls must carry its reasoning_content
# - `reasoning`: https://openrouter.ai/docs/use-cases/reasoning-tokens
# - `chat_template_kwargs`: https://docs.vllm.ai/en/v0.26.0/features/reasoning_outputs/; Qwen's template reads
#   enable_thinking, DeepSeek's and Granite's read thinking
# - `reasoning_split`: https://platform.minimax.io/docs/api-reference/text-openai-api; `adaptive` is the same without
#   the split

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from services.llm_gateway.protocols.common.provider_state import unpack_state
from services.llm_gateway.protocols.common.request_rules import THINKING_TOKENS
from services.llm_gateway.protocols.openai.reasoning_details import BLOCKS_KIND, KIND

if TYPE_CHECKING:
    from headrace.v1 import llm_pb2
    from services.llm_gateway.providers.provider_file import Provider


def build_wish_fields(request: llm_pb2.ChatRequest, provider: Provider) -> dict[str, Any]:
    fields = _form_wish(request.reasoning, provider) if request.HasField("reasoning") else {}
    return fields | {"reasoning_split": True} if provider.reasoning == "reasoning_split" else fields


def _form_wish(reasoning: llm_pb2.Reasoning, provider: Provider) -> dict[str, Any]:
    effort = reasoning.effort.lower() if reasoning.enabled else ""
    match provider.reasoning:
        case "reasoning_effort":
            # No form of "off" is accepted by all models: older ones refuse the effort "none".
            return {"reasoning_effort": effort} if effort else {}
        case "enable_thinking":
            budget = THINKING_TOKENS.get(reasoning.effort) if reasoning.enabled else None
            return {"enable_thinking": reasoning.enabled} | ({"thinking_budget": budget} if budget else {})
        case "thinking":
            thinking = {"thinking": {"type": "enabled" if reasoning.enabled else "disabled"}}
            return thinking | ({"reasoning_effort": effort} if effort else {})
        case "reasoning":
            if not reasoning.enabled:
                return {"reasoning": {"effort": "none"}}
            return {"reasoning": {"effort": effort} if effort else {"enabled": True}}
        case "chat_template_kwargs":
            return {"chat_template_kwargs": {"enable_thinking": reasoning.enabled, "thinking": reasoning.enabled}}
        case "reasoning_split" | "adaptive":
            return {"thinking": {"type": "adaptive" if reasoning.enabled else "disabled"}}


def build_history_fields(message: llm_pb2.Message, provider: Provider) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    if blocks := unpack_state(message.provider_state, provider.key, BLOCKS_KIND):
        fields[BLOCKS_KIND] = blocks
    if details := unpack_state(message.provider_state, provider.key, KIND):
        fields[KIND] = details
    if message.HasField("reasoning_content"):
        match provider.reasoning:
            case "reasoning_effort":
                # OpenAI itself has no such field.
                pass
            case "reasoning":
                if not details:
                    fields["reasoning"] = message.reasoning_content
            case "chat_template_kwargs":
                # vLLM read the second until 0.11 and reads the first since.
                fields |= dict.fromkeys(("reasoning", "reasoning_content"), message.reasoning_content)
            case _:
                fields["reasoning_content"] = message.reasoning_content
    elif message.tool_calls and provider.keeps_reasoning:
        # The model may have called without a thought; the field is wanted all the same.
        fields["reasoning_content"] = ""
    return fields
