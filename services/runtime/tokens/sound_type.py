"""Type of a WAV or MP3 file, from its first bytes."""

from __future__ import annotations

SOUND_TYPES = ("audio/wav", "audio/mpeg")
"""Sounds that models take."""


def sound_type(head: bytes) -> str:
    """Return a sound's MIME type; empty for other data."""
    if head.startswith(b"RIFF") and head[8:12] == b"WAVE":
        return "audio/wav"
    is_tagged = head.startswith(b"ID3") and head[3:4] < b"\x10"
    # A frame begins with 11 bits that are set; layer III is 01.
    is_frame = len(head) > 1 and head[0] == 0xFF and head[1] & 0xE6 == 0xE2
    return "audio/mpeg" if is_tagged or is_frame else ""
