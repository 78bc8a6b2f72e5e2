"""Draw a column of a CSV file as an SVG chart. The standard library only."""

from __future__ import annotations

import argparse
import csv
import re
import sys
from html import escape
from pathlib import Path

WIDTH, HEIGHT, MARGIN = 800, 450, 60
ROWS_MAX = 60
"""More bars than this cannot be told apart."""


def main() -> None:
    given = _arguments()
    totals, skipped = read(Path(given.source), given.labels, given.numbers)
    if not totals:
        sys.exit(f"no row of {given.source} has a number in {given.numbers!r}")
    if len(totals) > ROWS_MAX:
        sys.exit(f"{len(totals)} labels are too many for a chart (at most {ROWS_MAX}); choose another column")
    Path(given.target).write_text(draw(totals, given.kind, given.title or given.numbers), encoding="utf-8")
    print(f"{given.target}: {len(totals)} points, from {min(totals.values()):g} to {max(totals.values()):g}")
    if skipped:
        print(f"{skipped} rows without a number were skipped")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("source")
    parser.add_argument("target")
    parser.add_argument("--labels", required=True, help="column of the labels")
    parser.add_argument("--numbers", required=True, help="column of the numbers")
    parser.add_argument("--kind", choices=["bar", "line"], default="bar")
    parser.add_argument("--title", default="")
    return parser.parse_args()


def read(path: Path, labels: str, numbers: str) -> tuple[dict[str, float], int]:
    """The sum for each label, in the file's order, and how many rows had no number."""
    totals: dict[str, float] = {}
    skipped = 0
    with open(path, encoding="utf-8-sig", newline="") as file:
        rows = csv.DictReader(file)
        columns = rows.fieldnames or []
        for column in (labels, numbers):
            if column not in columns:
                sys.exit(f"there is no column {column!r}; the columns are: {', '.join(columns)}")
        for row in rows:
            text = re.sub(r"[^0-9.eE+-]", "", row[numbers] or "")
            try:
                totals[row[labels]] = totals.get(row[labels], 0.0) + float(text)
            except ValueError:
                skipped += 1
    return totals, skipped


def draw(totals: dict[str, float], kind: str, title: str) -> str:
    low, high = min(0.0, *totals.values()), max(0.0, *totals.values())
    scale = (HEIGHT - 2 * MARGIN) / ((high - low) or 1.0)
    step = (WIDTH - 2 * MARGIN) / len(totals)

    def y(value: float) -> float:
        return MARGIN + (high - value) * scale

    shapes: list[str] = []
    points: list[str] = []
    for number, (label, value) in enumerate(totals.items()):
        middle = MARGIN + (number + 0.5) * step
        points.append(f"{middle:.1f},{y(value):.1f}")
        if kind == "bar":
            top, tall = min(y(value), y(0)), abs(y(value) - y(0))
            left, wide = middle - 0.4 * step, 0.8 * step
            shapes.append(f'<rect x="{left:.1f}" y="{top:.1f}" width="{wide:.1f}" height="{tall:.1f}" fill="#4878a8"/>')
        shapes.append(
            f'<text x="{middle:.1f}" y="{HEIGHT - MARGIN + 18}" text-anchor="middle">{escape(label[:12])}</text>'
            f'<text x="{middle:.1f}" y="{y(value) - 6:.1f}" text-anchor="middle">{value:g}</text>'
        )
    if kind == "line":
        shapes.append(f'<polyline points="{" ".join(points)}" fill="none" stroke="#4878a8" stroke-width="2"/>')
    shapes.append(f'<line x1="{MARGIN}" x2="{WIDTH - MARGIN}" y1="{y(0):.1f}" y2="{y(0):.1f}" stroke="#888"/>')
    shapes.append(f'<text x="{WIDTH / 2}" y="30" text-anchor="middle" font-size="18">{escape(title)}</text>')
    body = "\n".join(shapes)
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif"'
    return f'{head} font-size="11">\n<rect width="100%" height="100%" fill="white"/>\n{body}\n</svg>\n'


if __name__ == "__main__":
    main()
