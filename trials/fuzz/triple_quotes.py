"""The triple-quote preprocessor: any text goes through, keeps its lines, and is unchanged where it has no such text."""

from __future__ import annotations

from services.orchestrator.agents.definition.reading import to_json


def check(data: bytes) -> None:
    """Turn the text that `data` is in UTF-8 into JSON."""
    source = data.decode(errors="ignore")
    result = to_json(source)
    assert result.count("\n") == source.count("\n")
    if '"""' not in source:
        assert result == source
