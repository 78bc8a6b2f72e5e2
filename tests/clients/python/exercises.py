"""Runs a client's exercises and prints their results as a line of JSON; tests/support/clients/script.py checks it.

Programs get the address of the OpenAI adapter. They import nothing of ours but this file: each runs in an environment
that has its client alone.
"""

import asyncio
import inspect
import json
import sys
import traceback
from collections.abc import Callable
from importlib import metadata
from typing import Any

from pydantic import BaseModel

URL = sys.argv[1] if len(sys.argv) > 1 else ""
MODELS = ("schemas", "words")

NAMES = (
    *("text", "streamed_text", "function", "streamed_function"),
    *("typed", "streamed_typed", "typed_by_a_call", "streamed_typed_by_a_call"),
)

COUNT = "Count."
WHERE = "Where am I?"
WHICH = "Which city?"


class Place(BaseModel):
    """A city and how many people live there."""

    city: str
    people: int


class Pieces(list[str]):
    """A text in the pieces in which it arrived."""

    def tell(self) -> list[Any]:
        return ["".join(self), len([piece for piece in self if piece]) > 1]


class Locator:
    """The caller's function; it records its arguments."""

    def __init__(self) -> None:
        self.calls: list[dict[str, Any]] = []

    def locate(self, exact: bool) -> str:
        """Tell where the user is.

        Args:
            exact: Whether the street is wanted too.
        """
        self.calls.append({"exact": exact})
        return '{"city": "Lyon"}'


def report(package: str, program: dict[str, Any]) -> None:
    """Do each exercise that a program has with each model; underscores in their names stand for spaces."""
    exercises = {name: program[name] for name in NAMES if name in program}
    results = asyncio.run(_do_all(exercises))
    print()  # The client's own output may not end with a line break.
    print(json.dumps({"version": metadata.version(package), "results": results}))


async def _do_all(exercises: dict[str, Callable[[str], Any]]) -> dict[str, dict[str, Any]]:
    return {
        name.replace("_", " "): {model: await _do(exercise, model) for model in MODELS}
        for name, exercise in exercises.items()
    }


async def _do(exercise: Callable[[str], Any], model: str) -> Any:
    try:
        result = exercise(model)
        result = await result if inspect.isawaitable(result) else result
    except Exception as error:
        traceback.print_exc()
        return f"{type(error).__name__}: {error}"
    return result.model_dump() if isinstance(result, BaseModel) else result
