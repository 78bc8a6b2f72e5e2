"""A sample of system calls of each service fails in each possible way, over real processes.

`python -m trials faults` tries every call. A point that once broke something stays in the sample.
"""

import pytest

from trials.faults.calls import FAULTS, SERVICES, Point
from trials.faults.control import needs_compiler
from trials.faults.series import try_points

SAMPLE: dict[str, dict[str, tuple[int, ...]]] = {
    "memory": {
        "open": (2, 9, 14, 19),
        "read": (1, 2),
        "write": (4, 20, 40, 60),
        "fsync": (2, 4, 6),
        "fdatasync": (1, 6, 12),
        "rename": (1,),
        "unlink": (1,),
        "mkdir": (1,),
        "recv": (3, 9),
        "send": (3, 9),
    },
    "orchestrator": {"write": (3,), "recv": (4, 20), "send": (6, 25)},
    "llm_gateway": {"write": (3,), "recv": (2, 6), "send": (2, 7)},
    "tools": {
        "open": (3, 20, 40, 13),
        "opendir": (2, 10),
        "read": (5, 20, 35),
        "write": (2, 5, 6),
        "fsync": (2, 8, 12),
        "rename": (1,),
        "link": (1, 3),
        "unlink": (3,),
        "mkdir": (3, 20),
        "recv": (2, 4),
        "send": (2, 4),
    },
    "facade": {"write": (2,), "accept": (2, 5), "recv": (3, 12), "send": (5, 30)},
}
"""The numbers of the calls of each kind that fail during the workload; the kind's faults are assigned in turn."""

SINGLE = (
    "memory:run:write:1:ENOSPC:on",
    "memory:run:open:1:EMFILE:on",
    "memory:start:open:1:EIO:on",
    "memory:start:open:2:EIO",
    "memory:start:open:2:EMFILE",
    "memory:start:opendir:1:EIO",
    "memory:start:ftruncate:1:EIO",
    "memory:start:ftruncate:1:EINTR",
    "memory:start:mmap:1:ENOMEM",
    "memory:start:read:16:EIO",
    "memory:start:socket:1:EMFILE",
    "orchestrator:start:open:1:EMFILE",
    "orchestrator:start:open:1:ENOSPC",
    "orchestrator:start:read:1:EIO:on",
    "orchestrator:start:connect:2:ECONNREFUSED",
    "llm_gateway:start:open:1:EIO",
    "llm_gateway:start:read:1:EIO:on",
    "tools:run:write:1:ENOSPC:on",
    "tools:run:open:1:EIO:on",
    "tools:run:open:25:EIO",
    "tools:run:open:53:EIO",
    "tools:run:mkdir:28:ENOSPC",
    "tools:start:open:1:EIO",
    "facade:run:accept:1:EMFILE:on",
    "facade:run:send:22:EPIPE",
    "facade:run:send:28:EPIPE",
    "facade:start:socket:1:EMFILE:on",
)


def list_sample(service: str) -> list[Point]:
    single = [point for point in map(Point.parse, SINGLE) if point.service == service]
    return single + [
        Point(service, "run", call, numbers[place % len(numbers)], fault)
        for call, numbers in SAMPLE[service].items()
        for place, fault in enumerate(FAULTS[call])
    ]


@pytest.mark.nightly
@needs_compiler
@pytest.mark.parametrize("part", ["memory:run", "memory:start", *SERVICES[1:]])
async def test_the_suite_survives_each_failing_system_call_of_the_sample(part: str) -> None:
    points = [point for point in list_sample(part.partition(":")[0]) if str(point).startswith(f"{part}:")]
    verdicts = await try_points(points, jobs=1, tell=lambda _: None)
    broken = [f"{verdict.point}: {problem}" for verdict in verdicts for problem in verdict.problems]
    assert not broken, "python -m trials faults POINT repeats one:\n" + "\n".join(broken)
    assert [str(verdict.point) for verdict in verdicts if not verdict.fired] == []


def test_the_sample_has_every_fault_of_every_call() -> None:
    found = {(point.call, point.fault) for service in SERVICES for point in list_sample(service)}
    assert found == {(call, fault) for call, faults in FAULTS.items() for fault in faults}
