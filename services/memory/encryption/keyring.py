"""The data keys of all tenants, unwrapped when first needed.

A tenant's first key is created with its first write. New data uses the newest key; every key is kept, because older
data and backups need it.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from threading import Lock
from typing import TYPE_CHECKING, TypeVar

import structlog
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from headrace.errors import HeadraceError, KeyUnavailable, LogDamaged, Overloaded
from services.memory.encryption import envelope
from services.memory.encryption.data_keys import AUTHENTICATED, KEY_BYTES, PLAIN, find_tenant_mark, make_data_key
from services.memory.encryption.envelope import HEAD_BYTES, MARK, NONCE_BYTES, WrongCiphertext
from services.runtime.clock import monotonic_s

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from services.memory.encryption.data_keys import DataKey, DataKeys
    from services.memory.encryption.master_keys import MasterKeys

Row = TypeVar("Row")

RETRY_S = 5.0
"""How long a failed key lookup is remembered; if the master keys did not answer, it applies to all keys. Otherwise a
command would run for every read."""

THREADS_MAX = 4
"""Threads that wait for master keys, so that other work continues."""

REFRESH_S = 2.0
"""Interval at which other processes' keys are read; a rotation takes effect after it."""

log = structlog.get_logger()


class Keyring:
    """May be used in any thread. Without `masters` nothing is encrypted, and encrypted data cannot be read."""

    def __init__(
        self,
        masters: MasterKeys | None = None,
        keys: DataKeys | None = None,
        *,
        encrypts: bool = True,
        is_strict: bool = False,
    ) -> None:
        assert (masters is None) == (keys is None), "one is of no use without the other"
        self._masters, self._stored = masters, keys
        self.encrypts = encrypts and masters is not None
        """Whether new data is encrypted."""
        self.is_strict = self.encrypts and is_strict
        """Whether an unsealed line of a chat counts as damage: an operator requires it, or all lines have been
        sealed."""
        self._keys: dict[bytes, DataKey] = {}
        self._newest: dict[str, DataKey] = {}
        self._open: dict[bytes, AESGCM] = {}
        self._current: dict[str, tuple[bytes, AESGCM]] = {}
        """By tenant: the prefix of its encrypted data, and the newest key."""
        self._failures: dict[bytes, tuple[float, type[HeadraceError], str]] = {}
        """By key: until when it is not requested again, and the error raised until then."""
        self._silent_until_s = 0.0
        self._locks: defaultdict[str, Lock] = defaultdict(Lock)
        self._threads = ThreadPoolExecutor(THREADS_MAX, "keys")

    @property
    def is_on(self) -> bool:
        """Whether there are master keys, so that encrypted data can be read."""
        return self._masters is not None

    def close(self) -> None:
        if self.is_on:  # or it is the one that all stores without encryption have
            self._threads.shutdown(wait=False, cancel_futures=True)

    def refresh(self) -> None:
        """Read the stored keys. Blocks."""
        if self._stored is None:
            return
        for key in self._stored.list_all():
            self._add_key(key)
        for tenant in list(self._current):
            with suppress(HeadraceError):  # it was logged, and is tried again; until then the previous key is used
                self._adopt(tenant)
        self.is_strict = self.is_strict or (self.encrypts and self._stored.read_goal().startswith(AUTHENTICATED))

    def open_store(self, *, is_empty: bool) -> None:
        """Record the state of a store that is opened for reading and writing. Blocks."""
        if self._stored is None:
            return
        goal = self._stored.read_goal()
        if not self.encrypts and goal.startswith(AUTHENTICATED):
            self._stored.write_goal("")
        elif self.encrypts and is_empty and not goal:
            self._stored.write_goal(self.goal)
        self.refresh()

    async def run_refreshes(self) -> None:
        while self.is_on:
            await asyncio.sleep(REFRESH_S)
            try:
                await asyncio.get_running_loop().run_in_executor(self._threads, self.refresh)
            except (OSError, HeadraceError) as error:
                log.warning("data keys not read", error=str(error))

    @property
    def goal(self) -> str:
        """The target state of all stored data: plain text, or encrypted with the newest keys. A rotation changes it."""
        if not self.encrypts:
            return PLAIN
        # A tenant's first key requires re-encryption only of data from before encryption.
        newest = sorted(key.key_id for key in self._newest.values() if key.version > 1)
        return f"{AUTHENTICATED} {hashlib.sha256(' '.join(newest).encode()).hexdigest()[:16]}"

    def list_keys(self) -> list[DataKey]:
        return sorted(self._keys.values(), key=lambda key: (key.tenant, key.version))

    def find_newest(self, tenant: str) -> DataKey | None:
        return self._newest.get(tenant)

    def name_tenant(self, key_id: bytes) -> str:
        """Return the tenant of a key; may block. Raises KeyUnavailable, Overloaded."""
        if key_id not in self._open:
            self._open_key(key_id)
        return self._keys[key_id].tenant

    def is_current(self, tenant: str, data: bytes) -> bool:
        """Return whether stored data has the form it would be written in now: with the newest key, or in plain text."""
        if not self.encrypts:
            return not envelope.is_encrypted(data)
        newest = self._newest.get(tenant)
        return newest is not None and data[:HEAD_BYTES] == MARK + bytes.fromhex(newest.key_id)

    def is_current_text(self, tenant: str, text: str) -> bool:
        """Like is_current, for a text of a row."""
        if not envelope.is_encrypted_text(text):
            return not self.encrypts
        try:
            return self.is_current(tenant, envelope.parse_text(text))
        except WrongCiphertext:
            return False

    def is_ready(self, tenant: str) -> bool:
        """Return whether `encrypt` can run without blocking; always true without encryption."""
        return not self.encrypts or tenant in self._current

    async def prepare(self, tenant: str) -> None:
        """Load the tenant's newest key, creating one if there is none. Raises KeyUnavailable, Overloaded."""
        if not self.is_ready(tenant):
            await asyncio.get_running_loop().run_in_executor(self._threads, self._find_current, tenant)

    async def prepare_newest(self, tenant: str) -> None:
        """Make the tenant write with its newest key from now on. Raises KeyUnavailable, Overloaded."""
        await self.prepare(tenant)
        if self.encrypts:
            await asyncio.get_running_loop().run_in_executor(self._threads, self._adopt, tenant)

    def prepare_now(self, tenant: str) -> None:
        """Like prepare, but blocks."""
        if not self.is_ready(tenant):
            self._find_current(tenant)

    def can_open(self, key_id: bytes) -> bool:
        """Return whether data of this key can be decrypted without blocking."""
        return key_id in self._open

    async def open_key(self, key_id: bytes) -> None:
        """Load a key. Raises KeyUnavailable, Overloaded."""
        if key_id not in self._open:
            await asyncio.get_running_loop().run_in_executor(self._threads, self._open_key, key_id)

    async def open_for(self, values: Iterable[bytes | str]) -> None:
        """Load the keys of these stored values. Raises KeyUnavailable, Overloaded."""
        for key_id in {envelope.find_key_id(value) for value in values}:
            if key_id is not None:
                await self.open_key(key_id)

    async def select_readable(self, rows: Sequence[Row], get_value: Callable[[Row], bytes | str]) -> list[Row]:
        """Return the rows, of several tenants, whose keys are available."""
        readable: list[Row] = []
        for row in rows:
            try:
                await self.open_for([get_value(row)])
            except HeadraceError:
                continue
            readable.append(row)
        return readable

    async def open_tenant(self, tenant: str) -> None:
        """Load the tenant's newest key, if it has one. Raises KeyUnavailable, Overloaded."""
        if self.is_on and tenant not in self._current and (newest := self._newest.get(tenant)) is not None:
            await self.open_key(bytes.fromhex(newest.key_id))

    async def open_all(self, tenant: str) -> None:
        """Load all available keys of the tenant. Raises Overloaded if one may soon become available."""
        for key in self.list_keys():
            if key.tenant == tenant:
                with suppress(KeyUnavailable):
                    await self.open_key(bytes.fromhex(key.key_id))

    def encrypt(self, tenant: str, context: bytes, plain: bytes) -> bytes:
        """Encrypt with the tenant's newest key; it can be decrypted only with the same `context`, which names the
        place.

        Blocks unless `is_ready`.
        """
        head, key = self._current.get(tenant) or self._find_current(tenant)
        nonce = os.urandom(NONCE_BYTES)
        return head + nonce + key.encrypt(nonce, plain, context)

    def decrypt(self, context: bytes, data: bytes) -> bytes:
        """Decrypt data of this place; may block.

        Raises:
            WrongCiphertext: The data was not written there.
            KeyUnavailable, Overloaded: The key is not available.
        """
        key_id = envelope.get_key_id(data)
        key = self._open.get(key_id) or self._open_key(key_id)
        nonce_end = HEAD_BYTES + NONCE_BYTES
        try:
            return key.decrypt(data[HEAD_BYTES:nonce_end], data[nonce_end:], context)
        except (InvalidTag, ValueError) as error:
            raise WrongCiphertext from error

    def encrypt_line(self, tenant: str, context: bytes, n: int, plain: bytes) -> bytes:
        """Encrypt a JSON line, without checksum, as line `n` of the place in `context`."""
        return envelope.format_line(n, self.encrypt(tenant, b"%b\0%d" % (context, n), plain))

    def decrypt_line(self, context: bytes, line: bytes) -> bytes:
        """Return the argument of encrypt_line, or an unencrypted line unchanged; raises the errors of decrypt."""
        if not envelope.is_encrypted_line(line):
            return line
        n, data = envelope.parse_line(line)
        return self.decrypt(b"%b\0%d" % (context, n), data)

    def encrypt_text(self, tenant: str, context: bytes, text: str) -> str:
        if not text:
            return text
        return envelope.format_text(self.encrypt(tenant, context, text.encode("utf-8", "surrogatepass")))

    def decrypt_text(self, context: bytes, text: str) -> str:
        """Return a row's text, decrypted. Raises LogDamaged, KeyUnavailable, Overloaded."""
        if not envelope.is_encrypted_text(text):
            return text
        try:
            return self.decrypt(context, envelope.parse_text(text)).decode("utf-8", "surrogatepass")
        except WrongCiphertext as error:
            raise make_damaged_error(context) from error

    def rotate(self, tenant: str) -> DataKey:
        """Create a new key for the tenant, which writes with it from now on. Blocks."""
        with self._locks[tenant]:
            return self._make_key(tenant)

    def _find_current(self, tenant: str) -> tuple[bytes, AESGCM]:
        with self._locks[tenant]:
            if (current := self._current.get(tenant)) is not None:
                return current
            newest = self._newest.get(tenant)
            if newest is None:
                # Another process may have made it a moment ago.
                self.refresh()
                newest = self._newest.get(tenant) or self._make_key(tenant)
        key_id = bytes.fromhex(newest.key_id)
        current = self._current[tenant] = (MARK + key_id, self._open_key(key_id))
        return current

    def _make_key(self, tenant: str) -> DataKey:
        assert self._masters is not None, "nothing is encrypted without master keys"
        assert self._stored is not None, "nor without a store of data keys"
        key = os.urandom(KEY_BYTES)
        wrapped = self._masters.wrap(tenant, key)
        while True:
            newest = self._newest.get(tenant)
            made = make_data_key(tenant, newest.version + 1 if newest else 1, wrapped)
            if self._stored.add(made):
                key_id = bytes.fromhex(made.key_id)
                self._open[key_id] = AESGCM(key)
                self._add_key(made)
                self._current[tenant] = MARK + key_id, self._open[key_id]
                return made
            self.refresh()
            if newest is None:
                return self._newest[tenant]

    def _add_key(self, key: DataKey) -> None:
        key_id = bytes.fromhex(key.key_id)
        if key_id in self._keys:
            return
        self._keys[key_id] = key
        newest = self._newest.get(key.tenant)
        if newest is None or key.version > newest.version:
            self._newest[key.tenant] = key

    def _adopt(self, tenant: str) -> None:
        key_id = bytes.fromhex(self._newest[tenant].key_id)
        if self._current[tenant][0] != MARK + key_id:
            self._current[tenant] = MARK + key_id, self._open_key(key_id)

    def _open_key(self, key_id: bytes) -> AESGCM:
        if self._masters is None:
            raise KeyUnavailable("this is encrypted, but HEADRACE_MEMORY_ENCRYPTION_KEYS is not set")
        if key_id not in self._keys:
            self.refresh()  # not under the key's lock: it may open this very key, to write with it
        with self._locks[key_id.hex()]:
            if (known := self._open.get(key_id)) is not None:
                return known
            key = self._keys.get(key_id)
            if key is None:
                raise KeyUnavailable(f"the data key {key_id.hex()} is not stored any more", keyId=key_id.hex())
            self._check_failures(key)
            try:
                unwrapped = self._masters.unwrap(key.tenant, key.wrapped_bytes)
                if len(unwrapped) != KEY_BYTES:
                    raise KeyUnavailable(f"the data key {key.key_id} was unwrapped to {len(unwrapped)} bytes, not 32")
            except HeadraceError as error:
                raise self._note_failure(key, error) from error
            self._failures.pop(key_id, None)
            self._open[key_id] = AESGCM(unwrapped)
            return self._open[key_id]

    def _check_failures(self, key: DataKey) -> None:
        known = self._failures.get(bytes.fromhex(key.key_id))
        now_s = monotonic_s()
        if known is not None and now_s < known[0]:
            raise known[1](known[2], tenant=key.tenant, keyId=key.key_id)
        if now_s < self._silent_until_s:
            raise Overloaded("the service of the master keys does not answer; try again later")

    def _note_failure(self, key: DataKey, error: HeadraceError) -> HeadraceError:
        """Remember the failure; return the error for the caller."""
        until_s = monotonic_s() + RETRY_S
        if not isinstance(error, KeyUnavailable):
            self._silent_until_s = until_s
        message = f"the data of tenant {key.tenant!r} cannot be read: {error.message}"
        if bytes.fromhex(key.key_id) not in self._failures:
            log.error("data key unavailable", tenant=key.tenant, key_id=key.key_id, error=error.message)
        self._failures[bytes.fromhex(key.key_id)] = until_s, type(error), message
        return type(error)(message, tenant=key.tenant, keyId=key.key_id)


NO_KEYS = Keyring()
"""The keyring of a store without encryption."""


def is_of_tenant(key_id: bytes, tenant: str) -> bool:
    """Return whether a key id belongs to the tenant, even if the key is unknown."""
    return key_id.startswith(find_tenant_mark(tenant))


def make_damaged_error(context: bytes) -> LogDamaged:
    place = " ".join(context.decode("utf-8", "replace").split("\0"))
    return LogDamaged(f"what is stored as {place} is not what was encrypted there")
