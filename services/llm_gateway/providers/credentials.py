"""Keys (`env:NAME`, `file:/path`) and addresses (`env:NAME`) from the environment."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from headrace.errors import ProviderAuthentication, ProviderUnavailable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from services.llm_gateway.providers.provider_file import Provider


class Credentials:
    """Keys are looked up at each call, so that a rotated file takes effect at once."""

    def __init__(self, env: Mapping[str, str]) -> None:
        self._env = env

    def __repr__(self) -> str:
        return "Credentials(***)"

    def find_keys(self, provider: Provider) -> tuple[str, ...]:
        """Return the keys in order; one empty key when none is needed.

        Raises:
            ProviderAuthentication: None is set.
        """
        if not provider.api_keys:
            return ("",)
        if keys := tuple(key for name in provider.api_keys if (key := self._read_secret(name))):
            return keys
        places = ", ".join(provider.api_keys)
        raise ProviderAuthentication(
            f"provider {provider.key!r} has no key: none of {places} is set in the gateway's environment",
            provider=provider.key,
        )

    def find_base_url(self, provider: Provider) -> str:
        """Return the provider's address without a final slash.

        Raises:
            ProviderUnavailable: Its variable is not set.
        """
        kind, _, name = provider.base_url.partition(":")
        base_url = self._env.get(name, "") if kind == "env" else provider.base_url
        if not base_url:
            raise ProviderUnavailable(
                f"provider {provider.key!r} has no address: {name} is not set in the gateway's environment",
                provider=provider.key,
            )
        return base_url.rstrip("/")

    def _read_secret(self, name: str) -> str:
        kind, _, place = name.partition(":")
        if kind == "env":
            return self._env.get(place, "").strip()
        path = Path(place)
        # Reading some bytes of a mounted secret is not worth a thread.
        return path.read_text().strip() if path.is_file() else ""
