"""Data keys in a folder, `<mark of the tenant>.<version>.json`, each a file that never changes. Everything blocks.

A command may add one while a service owns the folder; the service finds it at its next refresh.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING

import structlog

from services.memory.encryption.data_keys import DataKey, decode_data_key, encode_data_key, find_tenant_mark
from services.runtime.files.disk import disk_errors, make_folder, sync_folder, write_whole
from services.runtime.randomness import new_uuid

if TYPE_CHECKING:
    from pathlib import Path


FOLDER = "encryption/keys"
"""Beside the logs."""

GOAL = "goal"
"""Name of the file with the last goal that all stored data has reached."""

log = structlog.get_logger()


class FileDataKeys:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._known: dict[str, DataKey] = {}

    def list_all(self) -> list[DataKey]:
        """Raises OSError."""
        names = os.listdir(self._folder) if self._folder.is_dir() else []
        for name in sorted(names):
            if name.endswith(".json") and name not in self._known:
                try:
                    with suppress(FileNotFoundError):
                        self._known[name] = decode_data_key((self._folder / name).read_bytes())
                except ValueError as error:
                    log.error("data key cannot be read", file=name, error=str(error))
        return list(self._known.values())

    def add(self, key: DataKey) -> bool:
        path = self._folder / f"{find_tenant_mark(key.tenant).hex()}.{key.version}.json"
        unfinished = self._folder / new_uuid()
        with disk_errors("a data key", ""):
            make_folder(self._folder)
            write_whole(unfinished, encode_data_key(key))
            try:
                os.link(unfinished, path)  # fails if the file exists, unlike a rename
            except FileExistsError:
                return False
            finally:
                unfinished.unlink()
                sync_folder(self._folder)
        return True

    def read_goal(self) -> str:
        try:
            return (self._folder / GOAL).read_text("ascii", "replace")
        except FileNotFoundError:
            return ""

    def write_goal(self, goal: str) -> None:
        with disk_errors("the state of encryption", ""):
            make_folder(self._folder)
            write_whole(self._folder / GOAL, goal.encode())
