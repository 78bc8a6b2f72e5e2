"""What models put around an answer."""

from __future__ import annotations


def strip_fence(text: str) -> str:
    """Return what a code block holds, if the text is one; else the text."""
    first, newline, rest = text.strip().partition("\n")
    label = first.removeprefix("```").strip()
    if not newline or not first.startswith("```") or not rest.endswith("```"):
        return text
    if label and not label.replace("-", "_").replace("_", "a").isalnum():
        return text
    return rest.removesuffix("```").removesuffix("\n")


def find_between(text: str, opening: str, closing: str) -> str:
    """Return the text from the first `opening` to the last `closing`, both included; empty if it has none."""
    start, end = text.find(opening), text.rfind(closing)
    return text[start : end + len(closing)] if 0 <= start < end else ""
