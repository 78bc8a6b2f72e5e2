"""Pictures and sounds of an answer, within the limits of LlmMedia in llm.proto.

OpenRouter and Gemini send each picture whole, as a data URL
(https://openrouter.ai/docs/features/multimodal/image-generation, 2026-11), OpenAI sends a sound in pieces of base64
(https://platform.openai.com/docs/guides/audio, 2026-11).
"""

from __future__ import annotations

import base64
import struct

from headrace.v1.llm_pb2 import LlmMedia
from services.runtime.tokens.image_size import image_type, sound_type

PARTS_MAX = 8
BYTES_MAX = 32 * 1024 * 1024
"""Maximum bytes of all pictures and sounds of an answer."""

IMAGE_BYTES_MAX = 10 * 1024 * 1024
SOUND_BYTES_MAX = 25 * 1024 * 1024

SAMPLES_PER_S = 24_000
"""Rate of raw samples (`pcm16`), the only form in which OpenAI streams sound."""

_OTHER_SOUNDS = {b"OggS": "audio/ogg", b"fLaC": "audio/flac"}

_WAVE_HEAD = struct.Struct("<4sI4s4sIHHIIHH4sI")


class AnswerMedia:
    def __init__(self) -> None:
        self._parts = 0
        self._size_bytes = 0
        self._sound = bytearray()
        self._rest = ""
        """Base64 of less than three bytes; the next piece may have the rest."""
        self._sound_problem = ""

    def read_picture(self, data_url: str) -> LlmMedia:
        head, _, text = data_url.partition(",")
        if not head.endswith(";base64"):
            return LlmMedia(problem="a picture is not in base64")
        try:
            data = base64.b64decode(text, validate=True)
        except ValueError:  # also for characters beyond ASCII
            return LlmMedia(problem="a picture is not in base64")
        if len(data) > IMAGE_BYTES_MAX:
            return LlmMedia(problem=f"a picture is larger than {IMAGE_BYTES_MAX >> 20} MiB")
        mime_type = image_type(data)
        if not mime_type:
            return LlmMedia(problem="a picture is no PNG, JPEG, GIF or WebP")
        return self._admit(data, mime_type)

    def add_sound(self, text: str) -> None:
        """Add a piece, either encoded separately or cut from the base64 of the whole."""
        if self._sound_problem:
            return
        text = self._rest + text
        whole = len(text) // 4 * 4
        text, self._rest = text[:whole], text[whole:]
        try:
            self._sound += base64.b64decode(text, validate=True)
        except ValueError:  # also for characters beyond ASCII
            self._drop_sound("the sound is not in base64")
        if len(self._sound) > SOUND_BYTES_MAX:
            self._drop_sound(f"the sound is larger than {SOUND_BYTES_MAX >> 20} MiB")

    def take_sound(self) -> LlmMedia | None:
        """Return the whole sound, once; None if the answer has none."""
        if self._rest:
            self._drop_sound("the sound is not in base64")
        sound, problem = bytes(self._sound), self._sound_problem
        self._drop_sound("")
        if problem:
            return LlmMedia(problem=problem)
        if not sound:
            return None
        mime_type = sound_type(sound) or _OTHER_SOUNDS.get(sound[:4], "")
        return self._admit(sound, mime_type) if mime_type else self._admit(_make_wave(sound), "audio/wav")

    def _drop_sound(self, problem: str) -> None:
        self._sound_problem = problem
        self._sound, self._rest = bytearray(), ""

    def _admit(self, data: bytes, mime_type: str) -> LlmMedia:
        self._parts += 1
        if self._parts > PARTS_MAX:
            return LlmMedia(problem=f"an answer may have {PARTS_MAX} pictures and sounds")
        if self._size_bytes + len(data) > BYTES_MAX:
            return LlmMedia(problem=f"an answer may have {BYTES_MAX >> 20} MiB of pictures and sounds")
        self._size_bytes += len(data)
        return LlmMedia(data=data, mime_type=mime_type)


def _make_wave(samples: bytes) -> bytes:
    """Return 16-bit samples with the head of a WAV file (http://soundfile.sapp.org/doc/WaveFormat)."""
    size, rate = len(samples), SAMPLES_PER_S
    head = (b"RIFF", size + 36, b"WAVE", b"fmt ", 16, 1, 1, rate, rate * 2, 2, 16, b"data", size)
    return _WAVE_HEAD.pack(*head) + samples
