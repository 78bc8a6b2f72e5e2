"""docs/performance-transports.svg: CPU time per delta by load, as bars on a logarithmic scale, by hand."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from html import escape

from benchmarks.figures import Figures, us
from benchmarks.measuring import Load

WIDTH, HEIGHT = 860, 420
LEFT, RIGHT, TOP, BOTTOM = 60, 20, 60, 50
FLOOR, DECADES = -1, 5
"""0.1 to 10,000 µs, as powers of ten."""

COLORS = ("#2f81f7", "#e3872d", "#a371f7", "#3fa34d", "#d1477a")
"""Each has contrast to white and to near-black."""

STYLE = """\
text { font: 12px system-ui, sans-serif; fill: #424a53 }
.title { font-size: 14px; font-weight: 600 }
.value { font-size: 10px }
.line { stroke: #8c959f; stroke-opacity: .35 }
@media (prefers-color-scheme: dark) { text { fill: #c9d1d9 } }
"""


def picture(rows: Sequence[Figures]) -> str:
    """An SVG; its text follows the reader's light or dark."""
    shown = [row for row in rows if row.way_us]
    loads = list(dict.fromkeys(row.load for row in shown))
    ways = list(dict.fromkeys(row.way for row in shown))
    parts = [*_scale(), *_legend(ways), *_bars(shown, loads, ways)]
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img">'
    title = "CPU µs per delta, all processes on its way (logarithmic: shorter is better)"
    return "\n".join(
        (head, f"<style>\n{STYLE}</style>", f'<text class="title" x="{LEFT}" y="20">{title}</text>', *parts, "</svg>\n")
    )


def _y(value_us: float) -> float:
    return HEIGHT - BOTTOM - (math.log10(max(value_us, 10**FLOOR)) - FLOOR) / DECADES * (HEIGHT - BOTTOM - TOP)


def _scale() -> Iterator[str]:
    for decade in range(FLOOR, FLOOR + DECADES + 1):
        y = _y(10**decade)
        yield f'<line class="line" x1="{LEFT}" y1="{y:.1f}" x2="{WIDTH - RIGHT}" y2="{y:.1f}"/>'
        yield f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{10**decade:,}</text>'


def _legend(ways: Sequence[str]) -> Iterator[str]:
    for at, way in enumerate(ways):
        x = LEFT + at * 130
        yield f'<rect x="{x}" y="32" width="12" height="12" rx="2" fill="{COLORS[at % len(COLORS)]}"/>'
        yield f'<text x="{x + 18}" y="42">{escape(way)}</text>'


def _bars(rows: Sequence[Figures], loads: Sequence[Load], ways: Sequence[str]) -> Iterator[str]:
    group = (WIDTH - LEFT - RIGHT) / len(loads)
    bar = group * 0.8 / len(ways)
    for row in rows:
        at = ways.index(row.way)
        left = LEFT + loads.index(row.load) * group
        x, y = left + group * 0.1 + at * bar, _y(row.way_us)
        size = f'width="{bar - 3:.1f}" height="{HEIGHT - BOTTOM - y:.1f}" rx="2"'
        yield f'<rect x="{x:.1f}" y="{y:.1f}" {size} fill="{COLORS[at % len(COLORS)]}"/>'
        place = f'x="{x + bar / 2 - 1.5:.1f}" y="{y - 4:.1f}" text-anchor="middle"'
        yield f'<text class="value" {place}>{us(row.way_us)}</text>'
    for number, load in enumerate(loads):
        x = LEFT + (number + 0.5) * group
        yield f'<text x="{x:.1f}" y="{HEIGHT - 28}" text-anchor="middle">{escape(str(load))}</text>'
