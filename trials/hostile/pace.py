"""The machine's speed at similar work; bounds of CPU time are multiples of it."""

import time

from hyperframe.frame import DataFrame, Frame, PingFrame, WindowUpdateFrame

_SMALL_FRAMES = b"".join(
    frame.serialize()
    for frame in (
        PingFrame(0, opaque_data=b"12345678"),
        WindowUpdateFrame(1, window_increment=9),
        DataFrame(1, b"x" * 20),
    )
)
BYTES = 200_000

OTHER_WORK = 0.25
"""Share of the CPU for the honest stream and the measuring timer."""

CPU_S_PER_CONNECTION = 0.003
RSS_MB_MAX = 64

STALL_MB = 2.0
"""Amount that may be parsed while others wait, in MB; a stall is judged by the machine's speed. This is four
times what an idle machine needs, because a garbage collection of all objects of a thousand open calls may be
added. The header bomb that once stalled a service took twelve times as long. `python -m trials hostile`
measures the effect on honest readers in wall time.
"""


def measure_mb_s() -> float:
    """Return the CPU seconds in which hyperframe parses 1 MB of small frames, the slowest of three measurements."""
    return max(_parse_frames(_SMALL_FRAMES * (BYTES // len(_SMALL_FRAMES))) for _ in range(3))


def find_stall_s_max() -> float:
    """Return the maximum CPU time between two turns of a loop."""
    return STALL_MB * measure_mb_s()


def _parse_frames(data: bytes) -> float:
    view, at = memoryview(data), 0
    began_s = time.thread_time()
    while at < len(data):
        frame, length = Frame.parse_frame_header(view[at : at + 9])
        frame.parse_body(view[at + 9 : at + 9 + length])
        at += 9 + length
    return (time.thread_time() - began_s) / len(data) * 1e6
