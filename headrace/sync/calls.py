"""Client methods built from the contract, for programs without an event loop; calls.pyi has their types."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from inspect import signature
from typing import Any

from headrace import calls
from headrace.sync.blocking import BlockingContext, complete


class Calls:
    """Base class with the methods; a subclass sets `_client`, the asynchronous client over blocking channels."""


def _make_call(name: str, made: Any) -> Callable[..., Any]:
    def call(self: Any, /, *args: Any, **named: Any) -> Any:
        result = getattr(self._client, name)(*args, **named)
        return BlockingContext(result) if isinstance(result, AbstractAsyncContextManager) else complete(result)

    call.__name__ = call.__qualname__ = name
    call.__signature__ = signature(made)  # pyright: ignore[reportFunctionMemberAccess] - inspect reads it
    return call


for _name, _made in vars(calls.Calls).items():
    if not _name.startswith("_"):
        setattr(Calls, _name, _make_call(_name, _made))
