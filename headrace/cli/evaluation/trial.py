"""Another model or prompt for a query, as files and options say it."""

from __future__ import annotations

from pathlib import Path

from headrace.regular_files import read_regular_file

PROMPT_BYTES_MAX = 1024 * 1024


def read_prompt(path: Path) -> str:
    """Return a file's text without white space at its ends. Raises OSError, UnicodeDecodeError."""
    return read_regular_file(path, PROMPT_BYTES_MAX).decode().strip()


def make_trial(model: str | None, prompt: str | None) -> dict[str, str]:
    """Return `trial` of a query, empty where nothing is tried; `model` is a name, or PROVIDER/NAME."""
    trial: dict[str, str] = {}
    if model:
        provider, slash, name = model.partition("/")
        trial = {"providerKey": provider, "model": name} if slash else {"model": model}
    return trial if prompt is None else trial | {"systemPrompt": prompt}
