"""Messages printed as tables and lines: each cell stays on one line, and missing values are marked."""

import re

import pytest

from headrace.cli.run_view.printing import format_time
from headrace.cli.run_view.tables import print_message, print_rows
from headrace.v1 import common_pb2, data_pb2, llm_pb2, memory_pb2, schedule_pb2


def test_a_cell_stays_on_one_line_in_its_column(capsys: pytest.CaptureFixture[str]) -> None:
    print_rows(
        [memory_pb2.Fact(fact_id="f_1", text="one\ntwo\x1b[2K"), memory_pb2.Fact(fact_id="f_22", ended_at=1)],
        ("fact_id:id", "topic", "text", ("length", lambda fact: str(len(fact.text)))),
    )
    assert capsys.readouterr().out.splitlines() == [
        "id    topic  text              length",
        r"f_1   -      one two\u001b[2K  11",
        "f_22  -      -                 0",
    ]


def test_wide_characters_keep_columns_aligned(
    capsys: pytest.CaptureFixture[str],
) -> None:
    names = ("ab", "水车转轮", "e\u0301 ✅")
    print_rows([llm_pb2.ModelHealth(model=name, attempts=12) for name in names], ("model", "attempts"))
    assert capsys.readouterr().out.splitlines() == [
        "model     attempts",
        "ab              12",
        "水车转轮        12",
        "e\u0301 ✅            12",
    ]


def test_numbers_are_right_aligned_and_missing_ones_are_a_dash(capsys: pytest.CaptureFixture[str]) -> None:
    models = [llm_pb2.ModelHealth(model="a", attempts=12, error_ratio=0.25), llm_pb2.ModelHealth(model="b")]
    print_rows(models, ("model", "attempts", "error_ratio:errors"))
    assert capsys.readouterr().out == "model  attempts  errors\na            12     25%\nb             0       -\n"


def test_a_message_is_printed_as_lines_and_its_lists_as_tables(capsys: pytest.CaptureFixture[str]) -> None:
    erased = [data_pb2.ErasedItem(name="chats", count=12), data_pb2.ErasedItem(name="facts", count=3)]
    print_message(data_pb2.Erasure(erasure_id="e_1", requested_by="op", erased=erased))
    assert capsys.readouterr().out == (
        "erasure:      e_1\nrequested by: op\nerased:\nname   count\nchats     12\nfacts      3\n"
    )


def test_without_columns_a_table_has_the_fields_of_its_rows(capsys: pytest.CaptureFixture[str]) -> None:
    failure = common_pb2.Failure(code="OVERLOADED", message="try again")
    print_rows([schedule_pb2.Firing(outcome="started", run_id="r_1"), schedule_pb2.Firing(failure=failure)])
    assert capsys.readouterr().out == ("outcome  run  failure\nstarted  r_1  -\n-        -    OVERLOADED: try again\n")
    print_rows([])
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("time_ms", [-(2**63), 0, 253_402_300_800_000, 2**63 - 1])
def test_a_time_out_of_range_is_printed_as_the_nearest_date(time_ms: int) -> None:
    assert re.fullmatch(r"(1969|1970|9999)-\d\d-\d\d \d\d:\d\d", format_time(time_ms))


@pytest.mark.parametrize("zone", ["Mars/Base", "../etc", "Europe"])
def test_a_time_in_an_unknown_zone_is_printed_as_local_time(zone: str) -> None:
    assert format_time(0, zone) == format_time(0, "")
