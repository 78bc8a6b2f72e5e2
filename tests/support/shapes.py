"""Texts and schemas that overload naive programs."""

from typing import Any

SHAPES = {
    "spaces": " ",
    "newlines": "\n",
    "brackets": "[",
    "fences": "```\n",
    "tags": "< ",
    "our tags": "<speaker><system_reminder>",
    "mentions": "@a ",
    "templates": "{{a.b}}",
    "quotes": '"',
    "nested JSON": '{"a":[',
    "half pairs": "\\ud800",
    "bidi": "\u202e\u2067",
    "digits": "9",
    "marks out of order": "\u0301\u0316",
}


def fan_out(levels: int, keyword: str) -> dict[str, Any]:
    """Return a schema that refers to the next level eight times at each."""
    parts: dict[str, Any] = {"part0": {"type": "object"}}
    for level in range(1, levels):
        parts[f"part{level}"] = {keyword: [{"$ref": f"#/$defs/part{level - 1}"}] * 8}
    return {"$ref": f"#/$defs/part{levels - 1}", "$defs": parts}
