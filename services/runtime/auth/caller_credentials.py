"""Channels whose calls name the calling service and the current identity, and carry no more than is needed there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import grpc

from services.runtime.auth.authenticator import CALLER, TOKEN
from services.runtime.auth.identity import forward_identity
from services.runtime.auth.passed_credentials import is_credential, takes_credentials
from services.runtime.auth.settings import AuthSettings

CallerMetadata = tuple[tuple[str, str], ...]
"""Metadata of every call of a service; empty if a certificate names it, or nothing does."""


def build_caller_metadata(settings: AuthSettings, service: str) -> CallerMetadata:
    return ((CALLER, service), (TOKEN, settings.internal_token)) if settings.internal_token else ()


class AuthenticatedChannel(grpc.aio.Channel):
    def __init__(self, channel: grpc.aio.Channel, caller_metadata: CallerMetadata) -> None:
        self._channel = channel
        self._caller_metadata = caller_metadata

    def unary_unary(self, method: str, *args: Any, **kwargs: Any) -> Any:
        return self._with_metadata(method, self._channel.unary_unary(method, *args, **kwargs))

    def unary_stream(self, method: str, *args: Any, **kwargs: Any) -> Any:
        return self._with_metadata(method, self._channel.unary_stream(method, *args, **kwargs))

    def stream_unary(self, method: str, *args: Any, **kwargs: Any) -> Any:
        return self._with_metadata(method, self._channel.stream_unary(method, *args, **kwargs))

    def stream_stream(self, method: str, *args: Any, **kwargs: Any) -> Any:
        return self._with_metadata(method, self._channel.stream_stream(method, *args, **kwargs))

    async def __aenter__(self) -> AuthenticatedChannel:
        await self._channel.__aenter__()
        return self

    async def __aexit__(self, *exception: Any) -> None:
        await self._channel.__aexit__(*exception)

    async def close(self, grace: float | None = None) -> None:
        await self._channel.close(grace)

    def get_state(self, try_to_connect: bool = False) -> grpc.ChannelConnectivity:
        return self._channel.get_state(try_to_connect)

    async def wait_for_state_change(self, last_observed_state: grpc.ChannelConnectivity) -> None:
        await self._channel.wait_for_state_change(last_observed_state)

    async def channel_ready(self) -> None:
        await self._channel.channel_ready()

    def _with_metadata(self, method: str, start: Callable[..., Any]) -> Callable[..., Any]:
        takes_all = takes_credentials(method)

        def start_call(request: Any = None, *, metadata: Any = None, **settings: Any) -> Any:
            passed = [pair for pair in metadata or () if takes_all or not is_credential(pair[0])]
            return start(request, metadata=(*passed, *self._caller_metadata, *forward_identity()), **settings)

        return start_call
