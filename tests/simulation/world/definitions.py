"""Agents of a world, as files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

HOST = "provider.example"
"""Where the provider listens."""

ANSWER_TIMEOUT_MS = 25_000
"""How long a call waits for approval."""

MODEL = {"providerKey": "scripted", "model": "m"}
SMALL = MODEL | {"model": "small"}

MODEL_CALLS_MAX, TOOL_CALLS_MAX, TOKENS_MAX = 4, 3, 50
"""Budget of `thrifty`."""


def _plan(strategy: str) -> dict[str, Any]:
    stages: dict[str, Any] = {
        "plan": {"deepThinking": strategy == "SEQUENTIAL"},
        "execute": {"budget": {"maxDepth": 3}},
    }
    tools = {"backends": ["look", "set", "pay"]}
    section = {"strategy": strategy, "maxSteps": 3, "maxRounds": 2, **stages}
    return {"mode": "PLAN_EXECUTE", "modelConfig": MODEL, "toolConfig": tools, "planExecute": section}


AGENTS: dict[str, dict[str, Any]] = {
    "oneshot": {"mode": "ONESHOT", "modelConfig": MODEL, "plain": {}},
    "react": {"mode": "REACT", "modelConfig": MODEL, "toolConfig": {"backends": ["look", "set", "pay"]}, "react": {}},
    "team": {
        "mode": "REACT",
        "modelConfig": MODEL,
        "toolConfig": {"backends": ["look", "pay"]},
        "subagents": ["react", "asks"],
        "react": {"parallelToolCalls": True},
    },
    "asks": {
        "mode": "REACT",
        "modelConfig": MODEL,
        "toolConfig": {"backends": ["send"], "frontends": ["form"]},
        "react": {},
    },
    "small": {
        "mode": "REACT",
        "modelConfig": SMALL,
        "toolConfig": {"backends": ["look", "set"]},
        "memory": {"threshold": 0.3},
        "react": {"parallelToolCalls": True},
    },
    "thrifty": {
        "mode": "REACT",
        "modelConfig": MODEL,
        "toolConfig": {"backends": ["look", "pay"]},
        "subagents": ["react"],
        "budget": {"maxModelCalls": MODEL_CALLS_MAX, "maxToolCalls": TOOL_CALLS_MAX, "maxTokens": TOKENS_MAX},
        "react": {"parallelToolCalls": True},
    },
    "sequential": _plan("SEQUENTIAL"),
    "parallel": _plan("PARALLEL"),
    "recursive": _plan("RECURSIVE"),
}


PROVIDERS = {
    "providers": [
        {
            "key": "scripted",
            "protocol": "openai",
            "baseUrl": f"http://{HOST}/v1",
            "models": [{"name": "m"}, {"name": "small", "contextWindow": 7000, "maxOutput": 500}],
        }
    ]
}


def write_definitions(folder: Path, *, has_budgets: bool) -> Path:
    config = folder / "config"
    (config / "agents").mkdir(parents=True, exist_ok=True)
    for key, agent in AGENTS.items():
        budget = {} if has_budgets else {"budget": {}}
        (config / "agents" / f"{key}.json").write_text(json.dumps(agent | budget))
    (config / "providers.json").write_text(json.dumps(PROVIDERS))
    (config / "approvals.yaml").write_text(f"answerTimeoutMs: {ANSWER_TIMEOUT_MS}\n")
    return config
