"""Texts that programs choke on, by what they are made of."""

from __future__ import annotations

SHAPES = {
    "spaces": " ",
    "newlines": "\n",
    "brackets": "[",
    "fences": "```\n",
    "tags": "< ",
    "mentions": "@a ",
    "templates": "{{a.b}}",
    "quotes": '"',
    "nested JSON": '{"a":[',
    "half pairs": "\\ud800",
    "bidi": "\u202e\u2067",
    "digits": "9",
}
