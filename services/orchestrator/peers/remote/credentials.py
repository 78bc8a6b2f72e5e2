"""The headers that show a remote agent who we are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import structlog

from headrace.errors import RemoteAuthentication
from headrace.regular_files import read_regular_file
from services.orchestrator.agents.definition.remote import SECRET_PLACES, Remote

SECRET_BYTES_MAX = 64 * 1024

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Credentials:
    """Secrets are looked up at each request, so that a rotated file takes effect at once."""

    env: Mapping[str, str] = field(repr=False, default_factory=dict[str, str])

    def make_headers(self, remote: Remote) -> dict[str, str]:
        """Raises RemoteAuthentication where a secret is not set."""
        headers = {name: self._look_up(name, value) for name, value in remote.headers.items()}
        if remote.token is not None:
            headers["Authorization"] = f"Bearer {self._look_up('token', remote.token)}"
        return headers

    def _look_up(self, name: str, value: str) -> str:
        if not value.startswith(SECRET_PLACES):
            return value
        secret = self._read_secret(value)
        if secret and secret.isascii() and secret.isprintable():
            return secret
        problem = "is not set" if not secret else "has characters that no header has"
        raise RemoteAuthentication(f"remote.{name}: {value} {problem} in the orchestrator's environment")

    def _read_secret(self, name: str) -> str:
        kind, _, place = name.partition(":")
        if kind == "env":
            return self.env.get(place, "").strip()
        try:
            # Reading some bytes of a mounted secret is not worth a thread.
            return read_regular_file(place, SECRET_BYTES_MAX).decode().strip()
        except FileNotFoundError:
            return ""
        except (OSError, UnicodeDecodeError) as error:
            log.error("secret file refused", file=place, problem=type(error).__name__)
            return ""
