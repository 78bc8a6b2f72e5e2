"""One channel that passes each call on to the service that serves it, for `headrace.client.Client`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import grpc


class RoutedChannel:
    """Sends calls to the channel of their service, by full name, and those of other services to `default`."""

    def __init__(self, default: grpc.aio.Channel, others: Mapping[str, grpc.aio.Channel]) -> None:
        self._default, self._others = default, others

    def __getattr__(self, kind: str) -> Any:
        def make_call(method: str, *args: Any, **options: Any) -> Any:
            channel = self._others.get(method.split("/")[1], self._default)
            return getattr(channel, kind)(method, *args, **options)

        return make_call
