"""Reads secrets that configuration names by their place, so that its files contain none."""

from __future__ import annotations

from collections.abc import Mapping

import structlog

from headrace.regular_files import read_regular_text

SECRET_PLACES = ("env:", "file:")

BYTES_MAX = 64 * 1024

log = structlog.get_logger()


def read_secret(name: str, env: Mapping[str, str]) -> str:
    """Return the secret at `env:NAME` or `file:/path`, without spaces and line ends around it; empty if it is not set.

    A file that is there but cannot be read is logged, and counts as not set.
    """
    kind, _, place = name.partition(":")
    if kind == "env":
        return env.get(place, "").strip()
    try:
        # Reading some bytes of a mounted secret is not worth a thread.
        return read_regular_text(place, BYTES_MAX).strip()
    except FileNotFoundError:
        return ""
    except (OSError, UnicodeDecodeError) as error:
        problem = "not UTF-8" if isinstance(error, UnicodeDecodeError) else error.strerror
        log.error("secret file refused", file=place, problem=problem)
        return ""
