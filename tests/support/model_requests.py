"""Requests as the protocols pass them to the built-in model."""

from typing import Any

from services.simulator.model_request import ModelRequest, SaidText


def make_request(text: str, tools: dict[str, frozenset[str]] | None = None, **fields: Any) -> ModelRequest:
    """Make a request whose last message is `text`; other fields as given."""
    given: dict[str, Any] = {
        "system": "",
        "reminder": "",
        "dialogue": (SaidText("user", text),),
        "turn": 1,
        "results": (),
        "descriptions": dict.fromkeys(tools or {}, ""),
        "may_call": True,
    }
    return ModelRequest(
        model="sim-1", text=text, tools=tools or {}, prompt_tokens=1, stream=True, include_usage=True, **given | fields
    )
