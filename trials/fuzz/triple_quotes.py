"""The triple-quote preprocessor: it accepts any text, keeps its lines, and changes only triple-quoted strings and the
case of their key.
"""

from services.orchestrator.agents.definition.reading import to_json


def check(data: bytes) -> None:
    """Convert the text in `data`, taken as UTF-8, to JSON."""
    source = data.decode(errors="ignore")
    result = to_json(source)
    assert result.count("\n") == source.count("\n")
    if '"""' not in source:
        assert result.casefold() == source.casefold()
