"""TLS contexts by their files, made anew when a file has changed."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from headrace.tls import Tls

if TYPE_CHECKING:
    import ssl

    from headrace.tls import Stamp


class TlsContexts:
    def __init__(self, default: ssl.SSLContext | None = None) -> None:
        self._default = default
        self._known: dict[Tls, tuple[Stamp, ssl.SSLContext]] = {}

    async def find_context(self, tls: Tls) -> ssl.SSLContext:
        """Return the context of these files; making one takes 20 ms in a thread.

        Raises:
            OSError: A file cannot be used.
        """
        if tls == Tls() and self._default is not None:
            return self._default
        stamp = tls.read_stamp()
        known = self._known.get(tls)
        if known is None or known[0] != stamp:
            known = self._known[tls] = stamp, await asyncio.to_thread(_make_context, tls)
        return known[1]


def _make_context(tls: Tls) -> ssl.SSLContext:
    context = tls.context()
    context.set_alpn_protocols(["http/1.1"])
    return context
