"""What a series has found is kept in pieces, which add up."""

from collections import Counter
from pathlib import Path

import pytest

from trials.simulation.ledger import Record, name_ranges, read_all, read_ranges
from trials.simulation.report import describe_releases, describe_series
from trials.simulation.simulate import Result

CELL = ("kill", "memory", "idle")


def make_result(seed: int, *problems: str) -> Result:
    return Result(seed, "", [*problems], [], Counter(vanished=2), Counter({CELL: 3}), simulated_s=3600)


@pytest.mark.parametrize(("seeds", "text"), [([3, 1, 2], "1-3"), ([7], "7"), ([5, 1, 2, 9, 10], "1-2, 5, 9-10")])
def test_ranges_are_read_as_they_are_written(seeds: list[int], text: str) -> None:
    assert name_ranges(seeds) == text
    assert [*read_ranges(text)] == sorted(seeds)


def test_a_piece_is_read_as_it_was_kept_and_a_seed_counts_once(tmp_path: Path) -> None:
    record = Record("abc", "2026-11-26T10:00:00+00:00")
    for result in (make_result(1), make_result(2, "a call was lost"), make_result(1)):
        record.add(result)
        record.save(tmp_path)
    assert read_all(tmp_path) == [record]
    assert (record.seeds, record.failed, record.bites[CELL]) == ({1, 2}, {2: "a call was lost"}, 6)


def test_the_page_has_the_sum_of_each_release_and_the_report_each_broken_promise(tmp_path: Path) -> None:
    for commit, when, seeds in (("new0", "2026-11-27", (1, 2, 3)), ("old0", "2026-11-26", (1, 9))):
        record = Record(commit, when)
        for seed in seeds:
            record.add(make_result(seed, *(["lost"] if seed == 9 else [])))
        record.save(tmp_path)
    records = read_all(tmp_path)
    assert [record.commit for record in records] == ["old0", "new0"]
    before = "| release |\n|---|\n| 0.1.0 | 43 |\n| unreleased | 1 |\n"
    assert [*describe_releases(records, before)][2:] == ["| 0.1.0 | 43 |", "| unreleased | 2 | 5 | 5.0 | 15 | 1 |"]
    lines = [*describe_series(records)]
    assert "- old0, seed 9: lost" in lines
    assert any(line.startswith("| kill | memory | 15 |") for line in lines)
