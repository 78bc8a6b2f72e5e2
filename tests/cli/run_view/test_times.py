"""Times of logs of others, which may be any numbers."""

import re

import pytest

from headrace.cli.run_view.printing import format_time


@pytest.mark.parametrize("time_ms", [-(2**63), 0, 253_402_300_800_000, 2**63 - 1])
def test_a_time_that_no_date_has_is_told_as_one(time_ms: int) -> None:
    assert re.fullmatch(r"(1969|1970|9999)-\d\d-\d\d \d\d:\d\d", format_time(time_ms))
