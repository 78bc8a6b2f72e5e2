"""Renders our requests with the chat templates of open models, in llama.cpp's engine.

The templates come with the source distribution of llama-cpp-python.
"""

import json
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from tests.judges.environments import find_source
from tests.judges.models.conversations import CONVERSATIONS, Capture
from tests.judges.models.judging import LISTS
from trials.real_model.server import RealServer

UNSEEING = ("picture",)
"""Conversations that the served model does not support, because it has no vision."""

LOOP = "three_steps"
"""A conversation of two questions, each with three thoughts and as many calls."""

SHOWN = [[], [1], [1, 2], [1, 2, 3]]
"""Thoughts of the current loop that must be in each request of a question."""

Serving: TypeAlias = Callable[[Path], AbstractAsyncContextManager[RealServer]]


@dataclass(frozen=True)
class Template:
    file: str

    provider: str = "open"
    """Provider of the conversations whose settings the model needs."""

    has_thoughts: bool = False
    """Whether the template includes the model's thoughts."""

    has_tools: bool = True


TEMPLATES = {
    "qwen3": Template("Qwen-Qwen3-0.6B", has_thoughts=True),
    "qwen3_5": Template("Qwen3.5-4B", has_thoughts=True),
    "glm_4_6": Template("GLM-4.6", has_thoughts=True),
    "glm_4_7": Template("GLM-4.7-Flash", has_thoughts=True),
    "minimax_m2": Template("MiniMax-M2", has_thoughts=True),
    "minimax_m3": Template("MiniMax-M3", has_thoughts=True),
    "deepseek_v3_1": Template("deepseek-ai-DeepSeek-V3.1"),
    "deepseek_v3_2": Template("deepseek-ai-DeepSeek-V3.2", has_thoughts=True),
    "deepseek_v4": Template("deepseek-ai-DeepSeek-V4", has_thoughts=True),
    "kimi_k2_thinking": Template("Kimi-K2-Thinking", has_thoughts=True),
    "kimi_k3": Template("Kimi-K3", has_thoughts=True),
    "gpt_oss": Template("openai-gpt-oss-120b", has_thoughts=True),
    "gemma_2": Template("google-gemma-2-2b-it", "mistral", has_tools=False),
    "gemma_4": Template("google-gemma-4-31B-it", has_thoughts=True),
    "mistral_nemo": Template("mistralai-Mistral-Nemo-Instruct-2407", "mistral"),
    "mistral_small_3_2": Template("Mistral-Small-3.2-24B-Instruct-2506", "mistral"),
    "ministral_3": Template("mistralai-Ministral-3-14B-Reasoning-2512", "mistral"),
    "devstral": Template("unsloth-mistral-Devstral-Small-2507", "mistral"),
}


async def render_all(template: Template, capture: Capture, serving: Serving) -> None:
    """Render each request of all conversations; none may be refused, and no text or thought may be missing."""
    folder = find_source("llama_cpp_templates", LISTS / "llama_cpp_templates.txt") / "vendor/llama.cpp/models/templates"
    refused: list[str] = []
    async with serving(folder / f"{template.file}.jinja") as server:
        for name in CONVERSATIONS:
            if name in UNSEEING:
                continue
            prompts: list[str] = []
            for number, request in enumerate(await capture.get_requests(template.provider, name)):
                if not template.has_tools and any(message["role"] == "tool" for message in request["messages"]):
                    continue
                status, answer = await server.post("/apply-template", request)
                prompts.append(answer.get("prompt", ""))
                if status != 200:
                    refused.append(f"{name}, request {number}: {str(answer)[:200]}")
                elif lost := _find_lost(request, prompts[-1]):
                    refused.append(f"{name}, request {number}: left out {lost[:200]!r}")
            if name == LOOP and template.has_thoughts:
                thoughts = [[turn for turn in (1, 2, 3) if f"Thought {turn}." in prompt] for prompt in prompts]
                # A template may show an earlier loop as it likes.
                if thoughts[:4] != SHOWN or any(
                    not {*shown} <= {*seen} for shown, seen in zip(SHOWN, thoughts[4:], strict=True)
                ):
                    refused.append(f"thoughts shown: {thoughts}")
    assert not refused, "\n".join(refused)


def _find_lost(request: dict[str, Any], prompt: str) -> str:
    """Return a line of a user message or result that the prompt contains neither literally nor as JSON.

    Instructions and texts along with a call are up to each template.
    """
    for message in request["messages"]:
        if message["role"] in ("user", "tool"):
            for line in message["content"].splitlines():
                if not any(form in prompt for form in (line.strip(), json.dumps(line.strip())[1:-1])):
                    return line
    return ""
