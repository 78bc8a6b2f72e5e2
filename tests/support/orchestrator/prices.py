"""Models that cost something."""

import json
from pathlib import Path
from typing import Any

from headrace.v1 import llm_pb2
from tests.support.orchestrator.steps import Step, answer, content
from tests.support.orchestrator.subagents import delegate_task, first_question, texts_of
from tests.support.orchestrator.suite import Suite
from tests.support.order import Event

ANSWER_TOKENS = 4000
"""Output tokens of the scripted provider, unless max_tokens is lower."""

INPUT_TOKENS = 5
"""Input tokens that it bills for any request; fewer than are counted."""


def priced_model(
    name: str = "m", output_usd: float = 10.0, *, input_usd: float = 0.0, output_tokens_max: int = ANSWER_TOKENS
) -> llm_pb2.ModelInfo:
    return llm_pb2.ModelInfo(
        provider_key="scripted",
        model=name,
        context_window_tokens=100_000,
        output_tokens_max=output_tokens_max,
        input_usd_per_mtok_max=input_usd,
        output_usd_per_mtok_max=output_usd,
    )


def bill(request: llm_pb2.ChatRequest, output_usd: float = 10.0, input_usd: float = 0.0) -> list[Step]:
    """Return usage and finish of a provider that respects max_tokens, at these prices."""
    output = min(request.max_tokens or ANSWER_TOKENS, ANSWER_TOKENS)
    usage = llm_pb2.LlmDelta(
        usage={  # pyright: ignore[reportArgumentType] - a dict is a message to protobuf
            "input_tokens": INPUT_TOKENS,
            "output_tokens": output,
            "cost_usd": (INPUT_TOKENS * input_usd + output * output_usd) / 1e6,
            "model_calls": 1,
        }
    )
    reason = "stop" if output == ANSWER_TOKENS else "length"
    return [usage, llm_pb2.LlmDelta(finish=llm_pb2.LlmFinish(reason=reason))]


def script_tree(suite: Suite, children: list[str], prices: dict[str, float]) -> None:
    """Let the run's first turn, which is free, call these agents, each of which writes an expensive answer."""
    calls = [step for n, key in enumerate(children) for step in delegate_task(f"task {n}", index=n, agentKey=key)]
    free = llm_pb2.LlmDelta(usage={"input_tokens": 10, "output_tokens": 0, "model_calls": 1})  # pyright: ignore[reportArgumentType] - a dict is a message to protobuf
    ends = [free, llm_pb2.LlmDelta(finish=llm_pb2.LlmFinish(reason="tool_calls"))]

    def reply(request: llm_pb2.ChatRequest) -> list[Step]:
        if first_question(request).startswith("task"):
            return [0.01, *content("found"), *bill(request, prices[request.model])]
        return answer("that is it") if texts_of(request, "tool") else [*calls, *ends]

    suite.llm.reply = reply


def tree(**budget: Any) -> dict[str, Any]:
    large = {"maxModelCalls": 1000, "maxToolCalls": 1000, "timeoutMs": 60_000}
    return {"subagents": ["react"], "react": {"parallelToolCalls": True}, "budget": large | budget}


def spent_usd(events: list[Event]) -> float:
    return events[-1]["usage"].get("costUsd", 0.0)


CALL_USD = 0.04
"""The maximum and actual cost of each answer."""


def write_budget(folder: Path, usd: float, **rule: Any) -> None:
    rule = {"id": "all", "period": "month", "usd": usd} | rule
    (folder / "budgets.yaml").write_text(json.dumps({"budgets": [rule]}))


def answer_at_full_price(suite: Suite) -> None:
    suite.llm.models = [priced_model()]
    suite.llm.reply = lambda request: [*content("a story"), *bill(request)]
