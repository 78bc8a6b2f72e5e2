"""Turns triple-quoted system prompts of agent files into JSON strings.

A line break right after the opening quotes and a blank last line are dropped. Line breaks that leave the text follow
the string, so that line numbers stay the file's.
"""

import re

import orjson

# Ordinary strings are matched too, so that quotes inside them are never taken for an opening.
_TOKEN = re.compile(r'(?P<key>"systemPrompt"\s*:\s*)"""(?P<text>.*?)"""|"(?:[^"\\\n]|\\.)*"', re.IGNORECASE | re.DOTALL)


def to_json(source: str) -> str:
    return _TOKEN.sub(_quote_match, source)


def _quote_match(match: re.Match[str]) -> str:
    if match["key"] is None:
        return match[0]
    text = re.sub(r"\A[ \t]*\r?\n", "", match["text"])
    text = re.sub(r"\r?\n[ \t]*\Z", "", text)
    return match["key"] + orjson.dumps(text).decode() + "\n" * match["text"].count("\n")
