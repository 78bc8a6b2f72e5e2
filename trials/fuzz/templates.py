"""Argument templates: any text is filled in or refused by name, and JSON stays JSON of the same shape."""

import json

from services.orchestrator.run.answers.toolbox import Unresolvable, fill_templates

RESULT = '{"id": 12345678901234567890, "day": "2026-02-27", "list": [1]}'


def check(data: bytes) -> None:
    """Fill the templates in `data`, taken as UTF-8, from one tool's result."""
    arguments = data.decode(errors="ignore")
    try:
        result = fill_templates(arguments, lambda tool: RESULT if tool == "t" else None)
    except Unresolvable:
        return
    if "{{" not in arguments:
        assert result == arguments
        return
    try:
        given = json.loads(arguments)
    except (ValueError, RecursionError):
        return
    assert type(json.loads(result)) is type(given) or isinstance(given, str)
