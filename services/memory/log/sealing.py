"""Encrypted lines of a log: `{"_n":…,"_sealed":"…","_crc":"…"}`; the checksum covers the bytes in the file.

The plain text is the GCM tags of the chat's first line and of the previous line, then the line without its checksum. It
can be decrypted only as the line of that number, chat and tenant, and is valid only after that very line, so lines
cannot be exchanged, removed or moved. After a line damaged by a disk, the first line's tag shows whether later lines
belong to this chat. Older versions wrote `_encrypted`, which does not refer to other lines.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from headrace.errors import LogDamaged
from services.memory.encryption.envelope import (
    TAG_BYTES,
    WrongCiphertext,
    format_line,
    get_key_id,
    is_encrypted_line,
    is_sealed_line,
    parse_line,
)
from services.memory.encryption.keyring import NO_KEYS
from services.memory.log.lines import Unknown, WrongChecksum, add_checksum, decode_line, encode_json, remove_checksum
from services.runtime.auth.identity import Identity

if TYPE_CHECKING:
    from collections.abc import Sequence

    from services.memory.encryption.keyring import Keyring
    from services.memory.log.lines import Known, Line

NO_TAG = bytes(TAG_BYTES)
NO_LINK = NO_TAG + NO_TAG
"""Link of a first line, or of one that is not sealed: without tags of the chat's first line and the previous line."""


class _Numbered(msgspec.Struct, gc=False):
    n: int = msgspec.field(name="_n")


_NUMBERED = msgspec.json.Decoder(_Numbered)


class LineReader:
    """Reads the lines of a log in order, from the first one or after a line with a known link."""

    def __init__(self, chat_id: str, keys: Keyring = NO_KEYS, link: bytes = NO_LINK, tenant: str = "") -> None:
        self._chat_id = chat_id
        self._keys = keys
        self._root = link[:TAG_BYTES]
        """Tag of the chat's first line; zeros if it is not sealed, or has changed since it was written."""
        self._before: bytes | None = link[TAG_BYTES:]
        """Tag of the previous line; None if it has changed since it was written."""
        self._tenant = tenant
        """The chat's tenant; empty until the first line is read."""
        self.plain = b""
        """The last line read, without encryption and checksum."""
        self.problem = ""
        """Why the last line read is invalid."""
        self.is_proven = True
        """Whether the last line read provably belongs to the chat of the first line: it refers to it, or follows a line
        that does."""
        self.unsealed = 0
        """Number of lines that are not sealed."""
        self.refusal = ""
        """The unsealed line, if all lines must be sealed; then no line of the chat may be shown."""

    @property
    def link(self) -> bytes:
        """The link for the next line."""
        return self._root + (self._before or NO_TAG)

    def read(self, text: bytes) -> Line | None:
        """Return a line, given without its line break; None if it is not the line written in this place.

        Raises KeyUnavailable, or Overloaded, if the key of an encrypted line is not available.
        """
        before, self._before, self.problem = self._before, None, ""
        try:
            text = remove_checksum(text)
            self.plain, link, tenant = self._open(text)
            line = decode_line(self.plain)
            if line is None:
                raise WrongCiphertext("is no line of a log")
            if not self._tenant and not isinstance(line, Unknown):
                self._tenant = Identity.from_stored(line.tenant, "").tenant
            if link is not NO_LINK and before not in (None, link[TAG_BYTES : 2 * TAG_BYTES]):
                raise WrongCiphertext("does not follow the line before it")
            if tenant not in ("", self._tenant):
                raise WrongCiphertext("is encrypted with a key of another tenant")
        except WrongChecksum:
            self.problem = "its checksum is wrong"
            return None
        except WrongCiphertext as error:
            self.problem = str(error) or "is not what was encrypted for this place"
            return None
        if link is NO_LINK:
            self.unsealed += 1
            self.is_proven = True
            if self._keys.is_strict:
                self.problem = "is not sealed, as all lines are where chats are encrypted"
                self.refusal = self.refusal or f"line {line.n} {self.problem}"
                return None
        else:
            is_behind = self.is_proven and before is not None
            self.is_proven = is_behind or link[:TAG_BYTES] == self._root != NO_TAG
        self._before = link[-TAG_BYTES:]
        if line.n == 1:
            self._root = self._before
        return line

    def check(self) -> None:
        """Raise LogDamaged if no line of the chat may be shown."""
        if self.refusal:
            raise LogDamaged(f"the log of chat {self._chat_id} is damaged: {self.refusal}", chatId=self._chat_id)

    def _open(self, text: bytes) -> tuple[bytes, bytes, str]:
        """Return a line decrypted, its tags, and its key's tenant.

        The tags are those of the first line, the previous line and itself; NO_LINK if it is not sealed.
        """
        is_sealed = is_sealed_line(text)
        if not is_sealed and not is_encrypted_line(text):
            return text, NO_LINK, ""
        n, data = parse_line(text)
        tenant = self._keys.name_tenant(get_key_id(data))
        if not is_sealed:
            return self._keys.decrypt(_name_line(self._chat_id, n), data), NO_LINK, tenant
        sealed = self._keys.decrypt(_name_sealed(self._chat_id, n, tenant), data)
        return sealed[len(NO_LINK) :], sealed[: len(NO_LINK)] + data[-TAG_BYTES:], tenant

    def skip_to(self, text: bytes) -> None:
        """Continue after a known line, whose tags have changed if the log was sealed again."""
        if not text:
            return
        n, self._before = 0, NO_TAG
        try:
            _, link, _ = self._open(remove_checksum(text))
            n = _NUMBERED.decode(text).n
        except ValueError:  # it is damaged, and nothing is appended to it
            return
        self._before = link[-TAG_BYTES:]
        self._root = self._before if n == 1 else link[:TAG_BYTES]


def encode_lines(
    lines: Sequence[Known], keys: Keyring, tenant: str, link: bytes = NO_LINK
) -> tuple[list[bytes], bytes]:
    """Encode lines, without line breaks, to be stored after the line with that link; also return the last line's link.

    They are sealed for the `tenant` if `keys` require it; its key must be loaded.
    """
    texts = [encode_json(line) for line in lines]
    if not keys.encrypts:
        return [add_checksum(text) for text in texts], NO_LINK
    for index, line in enumerate(lines):
        texts[index], link = _seal_line(line.chat_id, line.n, texts[index], keys, tenant, link)
    return texts, link


def find_link(chat_id: str, log: bytes, keys: Keyring) -> bytes:
    """Return the link of the last line of a log, or of a line."""
    reader = LineReader(chat_id, keys)
    text = log.removesuffix(b"\n")
    reader.skip_to(text[text.rfind(b"\n") + 1 :])
    return reader.link


def decrypt_log(chat_id: str, log: bytes, keys: Keyring) -> bytes:
    """Return the log without encryption; lines changed since they were written stay encrypted. Raises LogDamaged like
    `check`, KeyUnavailable, Overloaded."""
    reader = LineReader(chat_id, keys)
    texts = log.split(b"\n")
    for index, text in enumerate(texts):
        if reader.read(text) is not None and reader.is_proven and is_encrypted_line(text):
            texts[index] = add_checksum(reader.plain)
    reader.check()
    return b"\n".join(texts)


def encrypt_log(chat_id: str, log: bytes, keys: Keyring, tenant: str) -> bytes:
    """Return an unencrypted log with its lines in the current form; encrypted or invalid lines are unchanged.

    Raises KeyUnavailable, Overloaded.
    """
    if not keys.encrypts:
        return log
    texts, link = log.split(b"\n"), NO_LINK
    for index, text in enumerate(texts):
        if is_encrypted_line(text):
            continue
        try:
            plain = remove_checksum(text)
            n = _NUMBERED.decode(plain).n
        except (ValueError, RecursionError):
            continue
        texts[index], link = _seal_line(chat_id, n, plain, keys, tenant, link)
    return b"\n".join(texts)


def name_older_log(chat_id: str) -> bytes:
    """Return the encryption context of an older log that was replaced."""
    return b"older log\0" + chat_id.encode()


def is_current_log(log: bytes, keys: Keyring, tenant: str) -> bool:
    """Return whether all lines of a log have the form in which they would be written now."""
    return all(_is_current_line(text, keys, tenant) for text in log.split(b"\n")[:-1])


def _is_current_line(text: bytes, keys: Keyring, tenant: str) -> bool:
    if not is_sealed_line(text):
        return not keys.encrypts and not is_encrypted_line(text)
    try:
        return keys.is_current(tenant, parse_line(remove_checksum(text))[1])
    except ValueError:
        return False


def _seal_line(chat_id: str, n: int, text: bytes, keys: Keyring, tenant: str, link: bytes) -> tuple[bytes, bytes]:
    data = keys.encrypt(tenant, _name_sealed(chat_id, n, tenant), link + text)
    tag = data[-TAG_BYTES:]
    return add_checksum(format_line(n, data, is_sealed=True)), (tag if n == 1 else link[:TAG_BYTES]) + tag


def _name_line(chat_id: str, n: int) -> bytes:
    return b"line\0%b\0%d" % (chat_id.encode(), n)


def _name_sealed(chat_id: str, n: int, tenant: str) -> bytes:
    return b"sealed line\0%b\0%d\0%b" % (chat_id.encode(), n, tenant.encode())
