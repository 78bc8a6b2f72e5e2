"""Encrypted lines of a log: `{"_n":…,"_sealed":"…","_crc":"…"}`, the checksum being that of what stands in the file.

What is encrypted is the GCM tags of the chat's first line and of the line before, and the line without its checksum. It
can be decrypted as the line of that number, chat and tenant alone, and counts only behind that very line: none can be
exchanged, taken out or put elsewhere. The first line's tag tells, behind a line that a disk has damaged, whether what
follows is of this chat. Older versions have written `_encrypted`, which says nothing of other lines."""

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
from services.memory.log.checksums import WrongChecksum, add_checksum, remove_checksum
from services.memory.log.lines import Unknown, decode_line, encode_json
from services.runtime.auth.identity import Identity

if TYPE_CHECKING:
    from collections.abc import Sequence

    from services.memory.encryption.keyring import Keyring
    from services.memory.log.lines import Known, Line


NO_TAG = bytes(TAG_BYTES)
NO_LINK = NO_TAG + NO_TAG
"""What a sealed line says of the chat's first line and the line before it where there is none, or it is not sealed."""


class _Numbered(msgspec.Struct, gc=False):
    n: int = msgspec.field(name="_n")


_NUMBERED = msgspec.json.Decoder(_Numbered)


class LineReader:
    """Reads the lines of a log, in order and from its first one, or behind a line whose link is known."""

    def __init__(self, chat_id: str, keys: Keyring = NO_KEYS, link: bytes = NO_LINK, tenant: str = "") -> None:
        self._chat_id = chat_id
        self._keys = keys
        self._root = link[:TAG_BYTES]
        """Tag of the chat's first line; zeros: it is not sealed, or not what was written."""
        self._before: bytes | None = link[TAG_BYTES:]
        """Tag of the line before; None: it is not what was written."""
        self._tenant = tenant
        """Whose chat it is; empty: the first line says so."""
        self.plain = b""
        """The line that was read last, without encryption and checksum."""
        self.problem = ""
        """Why the line that was read last is none."""
        self.is_proven = True
        """Whether the line that was read last is of the chat whose first line was read: by its own word, or behind a
        line that is."""
        self.unsealed = 0
        """Lines that are not sealed."""
        self.refusal = ""
        """The line that is not sealed though all are to be; no line of the chat is to be shown then."""

    @property
    def link(self) -> bytes:
        """What the next line is to say of the line that was read last."""
        return self._root + (self._before or NO_TAG)

    def read(self, text: bytes) -> Line | None:
        """Return a line, given without its line break; None if it is not what was written here.

        Raises KeyUnavailable, or Overloaded, where the key of an encrypted one cannot be had.
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
        """Raise LogDamaged where no line of the chat is to be shown."""
        if self.refusal:
            raise LogDamaged(f"the log of chat {self._chat_id} is damaged: {self.refusal}", chatId=self._chat_id)

    def _open(self, text: bytes) -> tuple[bytes, bytes, str]:
        """Return a line as it was before encryption, the tags of the first line, the line before and itself (NO_LINK:
        it is not sealed), and whose key it was encrypted with."""
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
        """Go on behind a line that was known, whose tags are others where the log was sealed anew."""
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
    """Encode lines without line breaks, to be stored behind the line of that link; return also the last one's link.

    They are sealed for the `tenant` where `keys` say so; the key is to be ready.
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
    """Return a log as it would stand without encryption; lines that are not what was written stay as they are. Raises
    LogDamaged as `check` does, KeyUnavailable, Overloaded."""
    reader = LineReader(chat_id, keys)
    texts = log.split(b"\n")
    for index, text in enumerate(texts):
        if reader.read(text) is not None and reader.is_proven and is_encrypted_line(text):
            texts[index] = add_checksum(reader.plain)
    reader.check()
    return b"\n".join(texts)


def encrypt_log(chat_id: str, log: bytes, keys: Keyring, tenant: str) -> bytes:
    """Return a log that is not encrypted with its lines as they would be written now; what is no such line stays as it
    is.

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
    """Return what the log that another one has replaced is encrypted as, whole."""
    return b"older log\0" + chat_id.encode()


def is_current_log(log: bytes, keys: Keyring, tenant: str) -> bool:
    """Return whether the lines of a log stand as they would be written now."""
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
