"""docs/performance-transports.md: what was measured, on what, and how to read it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from benchmarks.grid import Grid
from benchmarks.measuring import OPENED_PER_S, PROBES
from benchmarks.reader import PROBES_TIMEOUT_S, SETTLED_S

HEAD = """\
# Performance of the transports

What it costs to pass a model's deltas on, and what they wait on their way: provider → llm_gateway → orchestrator →
client, everything on one machine, a process for each service, with the simulated provider. Written by
`python -m trials bench transports --write`. What runs cost at each entrance: [performance](performance.md).

![CPU time per delta by load, for each transport and its peers](performance-transports.svg)
"""

METHOD = """\
## How it is taken

* All ways run side by side in one run and take turns, {rounds} rounds for each load; figures are medians over the
  rounds. **direct** is a reader at the provider's own socket. **aiohttp relay** passes bytes on and does nothing else:
  the floor of Python. **LiteLLM** is its proxy, one hop, at its fastest: one process, no keys, no database, no
  callbacks. **h2** and **grpcio** are whole suites, two hops and a log on disk, whose services all have that transport
  (`HEADRACE_TRANSPORT`).
* A load's streams are opened {opened:.0f} a second. {settled:.0f} s after the last one has begun, deltas are counted
  for {window:.0f} s, and the CPU time that the operating system has charged each process is taken between the same two
  moments: beginning and ending a run is not in it, except flat out, where streams of 4,000 deltas follow each other.
  Flat out the simulator writes 64 frames at a time, as a provider's bytes wait in the socket of a slower reader.
* A delta of a paced stream comes every 30 ms, whatever its reader does. "Added" is a percentile of this way less the
  same percentile of the direct reader in the same round. The first delta is that of {probes} more streams, opened one
  after the other while the load runs; if none has it within {probing:.0f} s, that is the figure.
* The reader is a process of its own that parses no delta. Before a suite it is a gRPC client made by
  `services.runtime`, and so has that suite's transport; on other ways it reads HTTP from its socket. It and the
  simulator have their part of the same cores: the last table.
* Resident memory is taken first, before anything else has filled the allocators.
"""


def document(
    about: Mapping[str, str], grids: Sequence[Grid], notes: Sequence[str], *, count: int, window_s: float
) -> str:
    """The whole page."""
    facts = "".join(f"| {name} | {value} |\n" for name, value in about.items())
    tables = "\n".join(grid.written() for grid in grids)
    said = "".join(f"**{note}**\n\n" for note in notes)
    method = METHOD.format(
        rounds=count, opened=OPENED_PER_S, settled=SETTLED_S, window=window_s, probes=PROBES, probing=PROBES_TIMEOUT_S
    )
    return f"{HEAD}\n{said}{tables}\n{method}\n## Machine\n\n| | |\n| :-- | :-- |\n{facts}"
