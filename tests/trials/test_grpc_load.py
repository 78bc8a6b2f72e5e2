"""The verdict on a load test: a stream that breaks fails it."""

import json

import pytest

from trials.grpc_load.__main__ import SECONDS
from trials.grpc_load.clients import CLIENTS, StreamEnd
from trials.grpc_load.runs import Result

WHOLE = StreamEnd(SECONDS, "OK", "", 3)
BROKEN = StreamEnd(4.2, "UNAVAILABLE", "ENHANCE_YOUR_CALM", 2)


def make_result(*ends: StreamEnd, missing: int = 0, complaint: str = "", refusals: tuple[str, ...] = ()) -> Result:
    return Result([*ends], 3, missing, complaint, [*refusals])


WRONG = {
    "a stream that ends with an error": make_result(WHOLE, BROKEN),
    "a stream with too few deltas": make_result(WHOLE, StreamEnd(SECONDS, "OK", "", 2)),
    "a stream of which nothing is known": make_result(WHOLE, missing=1),
    "a client that ends with an error": make_result(WHOLE, complaint="panic"),
    "a connection that is refused": make_result(WHOLE, refusals=("too many control frames",)),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_load_with_a_broken_stream_client_or_connection_fails(case: str) -> None:
    assert not WRONG[case].is_whole


def test_a_load_passes_when_all_streams_end_normally() -> None:
    uncounted = StreamEnd(SECONDS, "OK", "", None)
    assert make_result(WHOLE, uncounted).is_whole


def test_broken_streams_are_listed_by_time() -> None:
    later = StreamEnd(7.0, "UNAVAILABLE", "", 2)
    assert make_result(WHOLE, later, BROKEN).breaks == [BROKEN, later]


def test_the_output_of_load_clients_is_read_as_stream_ends() -> None:
    line = json.dumps({"messages": 2, "code": 14, "details": "ENHANCE_YOUR_CALM", "seconds": 4.2})
    assert CLIENTS["grpc-go"].read_output(f"{line}\n") == [BROKEN]
    calls = [
        {"latency": 4_200_000_000, "status": "Unavailable", "error": "ENHANCE_YOUR_CALM"},
        {"latency": 1_000_000, "status": "Canceled", "error": "x"},
        {"latency": 1_000_000, "status": "OK", "error": ""},
    ]
    ends = CLIENTS["ghz"].read_output(json.dumps({"details": calls}))
    assert [end.code for end in ends] == ["UNAVAILABLE", "CANCELLED", "OK"]
    assert (ends[0].seconds, ends[0].messages) == (4.2, None)
