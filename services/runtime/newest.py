"""A dictionary with a bound."""

from __future__ import annotations

from collections import OrderedDict
from typing import TypeVar

K = TypeVar("K")
V = TypeVar("V")


class NewestDict(OrderedDict[K, V]):
    """A dictionary of at most `size_max` entries: setting one makes it the newest, and drops the oldest if there are
    too many."""

    def __init__(self, size_max: int) -> None:
        super().__init__()
        self._size_max = size_max

    def __setitem__(self, key: K, value: V) -> None:
        super().__setitem__(key, value)
        self.move_to_end(key)
        if len(self) > self._size_max:
            self.popitem(last=False)
