"""The keyring that settings ask for."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from services.memory.encryption.data_keys import PLAIN
from services.memory.encryption.keyring import NO_KEYS, Keyring
from services.runtime.ending import CannotServe

if TYPE_CHECKING:
    from services.memory.encryption.data_keys import DataKeys

KINDS = ("file:", "command:", "python:")
"""What the setting of master keys begins with."""

OpenKeys: TypeAlias = "Callable[[DataKeys], Keyring]"
"""Makes the keyring of an engine, which has the data keys. Blocks."""


def open_no_keys(stored: DataKeys) -> Keyring:
    return NO_KEYS


def make_open_keys(source: str, *, encrypts: bool, is_strict: bool = False) -> OpenKeys:
    """Return what opens the keyring for the settings of encryption; empty: nothing is encrypted."""
    return partial(_open_keys, source, encrypts=encrypts, is_strict=is_strict)


def _open_keys(source: str, stored: DataKeys, *, encrypts: bool, is_strict: bool) -> Keyring:
    """Raises CannotServe where the master keys cannot be used, or are missing."""
    if not source:
        if stored.list_all() and stored.read_goal() != PLAIN:
            raise CannotServe(
                "what is stored is encrypted, and HEADRACE_MEMORY_ENCRYPTION_KEYS does not say with what; to decrypt"
                " it, have the keys and HEADRACE_MEMORY_ENCRYPTION_ENABLED=false"
            )
        if stored.read_goal():
            stored.write_goal(PLAIN)
        return NO_KEYS
    # Imported only here: a service without encryption does not need it.
    from services.memory.encryption.master_keys import open_master_keys

    try:
        keys = Keyring(open_master_keys(source), stored, encrypts=encrypts, is_strict=is_strict)
    except OSError as error:
        raise CannotServe(f"HEADRACE_MEMORY_ENCRYPTION_KEYS: {error}") from error
    keys.refresh()
    return keys
