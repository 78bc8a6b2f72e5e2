"""Keys to sign with: one of the environment, or one for a web identity, which ends and is asked for again.

https://docs.aws.amazon.com/STS/latest/APIReference/API_AssumeRoleWithWebIdentity.html
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Protocol
from xml.etree import ElementTree

import aiohttp
import structlog

from services.memory.storage.s3.errors import Refused, read_refusal
from services.memory.storage.s3.signing import Key
from services.runtime.clock import now_s
from services.runtime.net.bounded_body import read_bounded_body

if TYPE_CHECKING:
    from services.memory.storage.s3.settings import S3Settings

RENEW_S = 300.0
"""Time before a key's end from which a new one is asked for."""

ANSWER_BYTES_MAX = 64 * 1024
SESSION = "headrace-memory"
"""Name under which the store's own log has what was done with such a key."""

_PARTS = ("AccessKeyId", "SecretAccessKey", "SessionToken", "Expiration")

log = structlog.get_logger()


class NoKey(Exception):
    """Whoever gives keys does not give one now."""


class Keys(Protocol):
    async def read_key(self, http: aiohttp.ClientSession) -> Key:
        """Return the key of now.

        Raises:
            Refused: There is none for us.
            NoKey, aiohttp.ClientError, OSError: It cannot be had now.
        """
        ...


@dataclass(frozen=True, slots=True)
class OneKey:
    key: Key

    async def read_key(self, http: aiohttp.ClientSession) -> Key:
        return self.key


class WebIdentityKeys:
    def __init__(self, url: str, role_arn: str, token_file: Path) -> None:
        self._url, self._role_arn, self._token_file = url, role_arn, token_file
        self._key: Key | None = None
        self._ends_at_s = 0.0
        self._asking = asyncio.Lock()

    async def read_key(self, http: aiohttp.ClientSession) -> Key:
        async with self._asking:
            if self._key is not None and now_s() < self._ends_at_s - RENEW_S:
                return self._key
            try:
                self._key, self._ends_at_s = await self._ask(http)
            except (Refused, NoKey, aiohttp.ClientError, OSError) as error:
                if self._key is None or now_s() >= self._ends_at_s:
                    raise
                log.warning("key of the bucket not renewed", error=str(error))
            return self._key

    async def _ask(self, http: aiohttp.ClientSession) -> tuple[Key, float]:
        form = {
            "Action": "AssumeRoleWithWebIdentity",
            "Version": "2011-06-15",
            "RoleArn": self._role_arn,
            "RoleSessionName": SESSION,
            "WebIdentityToken": self._token_file.read_text().strip(),
        }
        headers = {"Content-Type": "application/x-www-form-urlencoded"}
        async with http.post(self._url, data=form, headers=headers, allow_redirects=False) as response:
            body = await read_bounded_body(response, ANSWER_BYTES_MAX)
        if 400 <= response.status < 500:
            raise read_refusal(response.status, body)
        try:
            root = ElementTree.fromstring(body)
            found = {name: root.findtext(f".//{{*}}Credentials/{{*}}{name}") or "" for name in _PARTS}
            ends_at_s = datetime.fromisoformat(found.pop("Expiration")).timestamp()
        except (ElementTree.ParseError, ValueError) as error:
            raise NoKey(f"answered with {response.status} and what is no answer of STS") from error
        return Key(found["AccessKeyId"], found["SecretAccessKey"], found["SessionToken"]), ends_at_s


def open_keys(settings: S3Settings) -> Keys:
    if settings.access_key_id:
        return OneKey(Key(settings.access_key_id, settings.secret_access_key, settings.session_token))
    assert settings.web_identity_token_file is not None, "the settings were checked"
    url = settings.endpoint_url or f"https://sts.{settings.region}.amazonaws.com"
    return WebIdentityKeys(url.rstrip("/") + "/", settings.role_arn, settings.web_identity_token_file)
