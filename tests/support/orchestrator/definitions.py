"""An agent definition that uses most fields, and wrong values for each of them."""

from typing import Any

BASE: dict[str, Any] = {
    "key": "a",
    "mode": "REACT",
    "modelConfig": {"providerKey": "p", "model": "m"},
    "toolConfig": {"backends": ["look", "slow"]},
    "subagents": ["b", "c"],
    "skills": ["s"],
    "budget": {"maxTokens": 9},
    "memory": {"threshold": 0.5},
    "output": {"form": "PLAIN"},
    "canary": {"share": 0.5, "stableVersion": 1},
    "plain": {},
    "react": {"systemPrompt": "Hi."},
    "planExecute": {"plan": {}, "execute": {"budget": {}}, "summary": {"systemPrompt": "So."}},
}

GONE = object()

MISTAKES: dict[str, Any] = {
    "name": 5,
    "sytem": "x",
    "icon": [],
    "tags": "x",
    "verify": "MAYBE",
    "toolPolicy": "NEVER",
    "chatTitle": 1,
    "publish": ["pigeon"],
    "modelConfig.temperature": "hot",
    "modelConfig.reasoning": {"effort": "SOME"},
    "toolConfig.backends.1": 5,
    "toolConfig.x": [],
    "subagents.1": "../x",
    "skills": None,
    "budget.maxSteps": 0,
    "budget.x": 1,
    "memory.threshold": 1.5,
    "memory.recap": {"enabled": "perhaps"},
    "output.form": "LOUD",
    "canary.share": 2,
    "canary.stableVersion": GONE,
    "react.maxSteps": -1,
    "react.systemPrompt": "{{nobody}}",
    "react.x": 1,
    "planExecute.strategy": "RANDOM",
    "planExecute.maxRounds": 0,
    "planExecute.plan.deepThinking": "deep",
    "planExecute.execute.budget.maxTokens": "x",
    "planExecute.summary.systemPrompt": 7,
    "models": {"vision": {"model": 5}},
}
"""Wrong values by field."""


def put(definition: dict[str, Any], path: str, value: Any) -> None:
    *parts, last = path.split(".")
    section: Any = definition
    for part in parts:
        section = section[int(part) if isinstance(section, list) else part]
    if value is GONE:
        del section[last]
    else:
        section[int(last) if isinstance(section, list) else last] = value
