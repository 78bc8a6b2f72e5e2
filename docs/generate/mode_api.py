"""Describes the API of modes, which a mode file's function receives."""

from __future__ import annotations

import inspect

from docs.generate import sources
from docs.generate.markdown import code, join_lines

FACTS = ("message", "params", "agent", "tools", "run_id", "chat_id", "random", "last_text")
"""Names that are values, in the page's order."""

METHODS = (
    *("ask", "answer", "publish", "call_tool", "call_tools", "call_agent", "ask_person"),
    *("plan", "task", "run_together", "once", "now_ms", "new_id", "load_state", "save_state", "notice"),
)
TEXTS = {
    "message": "The message to answer: the user's message, or a sub-agent's task.",
    "params": "The agent file's `custom.params`.",
    "agent": "The agent's definition.",
    "run_id": "The run's id.",
    "chat_id": "The chat's id.",
    "random": "A `random.Random`, seeded by the run and the scope: it gives the same numbers when the run is replayed.",
}
"""Descriptions of values without a docstring."""


def describe_mode() -> str:
    """Return the description of every name of the API, with its signature."""
    values = [f"- {code(f'mode.{name}')}: {_describe_value(name)}" for name in FACTS]
    return "\n\n".join(["\n".join(values), *map(_describe_method, METHODS)])


def _describe_value(name: str) -> str:
    return TEXTS.get(name) or join_lines(inspect.getdoc(getattr(sources.Mode, name)) or "")


def _describe_method(name: str) -> str:
    method = getattr(sources.Mode, name)
    signature = inspect.signature(inspect.unwrap(method))
    given = [parameter.replace(annotation=inspect.Parameter.empty) for parameter in signature.parameters.values()]
    shown = str(signature.replace(parameters=given[1:], return_annotation=inspect.Signature.empty))
    waits = inspect.iscoroutinefunction(method)
    prefix = "await " if waits else "async with " if name == "task" else ""
    text = inspect.getdoc(method) or inspect.getdoc(getattr(super(sources.Mode), name, None)) or ""
    return f"### {code(f'{prefix}mode.{name}{shown}')}\n\n{text}"
