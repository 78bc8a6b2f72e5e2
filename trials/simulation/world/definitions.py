"""The agents of a world, and their configuration files."""

import json
from pathlib import Path
from typing import Any

HOST = "provider.example"
"""Address of the model provider."""

FACADE_HOST = "localhost"
"""Address of the facade."""

ANSWER_TIMEOUT_MS = 25_000
"""Time that a call waits for approval."""

MODEL = {"providerKey": "scripted", "model": "m"}
SMALL = MODEL | {"model": "small"}

USD_PER_MTOK = 1000
"""Price of the models' output; input is free."""

ANSWER_TOKENS_MAX = 100
"""Output limit of `spender`, which is reserved for each call; its model reports half of it as used."""

COST_USD_MAX, PURSE_USD = 0.2, 0.25
"""Budget of one run of `spender`, and daily budget of all its runs: at most three calls, and at most four."""

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


def _ask(on_new_message: str) -> dict[str, Any]:
    tools = {"backends": ["send"], "frontends": ["form"]}
    return {"mode": "REACT", "modelConfig": MODEL, "toolConfig": tools, "onNewMessage": on_new_message, "react": {}}


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
    "asks": _ask("queue"),
    "resigns": _ask("cancel"),
    "yields": _ask("answer_default"),
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
    "spender": {
        "mode": "REACT",
        "modelConfig": MODEL | {"max_tokens": ANSWER_TOKENS_MAX},
        "toolConfig": {"backends": ["look", "pay"]},
        "budget": {"maxCostUsd": COST_USD_MAX},
        "react": {},
    },
    "sequential": _plan("SEQUENTIAL"),
    "parallel": _plan("PARALLEL"),
    "recursive": _plan("RECURSIVE"),
}

PRICE = {"inputPerMTok": 0, "outputPerMTok": USD_PER_MTOK}

PROVIDERS = {
    "providers": [
        {
            "key": "scripted",
            "protocol": "openai",
            "baseUrl": f"http://{HOST}/v1",
            "models": [
                {"name": "m", "contextWindow": 128_000, "maxOutput": 4096, "price": PRICE},
                {"name": "small", "contextWindow": 7000, "maxOutput": 500, "price": PRICE},
            ],
        }
    ]
}


def write_definitions(folder: Path, bug: str) -> Path:
    """Write the files of a configuration, without budgets if that is the planted bug; return their folder."""
    config = folder / "config"
    (config / "agents").mkdir(parents=True, exist_ok=True)
    for key, agent in AGENTS.items():
        budget = {"budget": {}} if bug == "unlimited" else {}
        (config / "agents" / f"{key}.json").write_text(json.dumps(agent | budget))
    (config / "providers.json").write_text(json.dumps(PROVIDERS))
    purse = f"budgets: [{{id: purse, period: day, agent: spender, usd: {PURSE_USD}}}]\n" if bug != "open purse" else ""
    (config / "budgets.yaml").write_text(purse)
    (config / "approvals.yaml").write_text(f"answerTimeoutMs: {ANSWER_TIMEOUT_MS}\n")
    return config
