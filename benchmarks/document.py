"""docs/performance-transports.md: what was measured, on what, and how to read it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from benchmarks.grid import Grid
from benchmarks.measuring import OPENED_PER_S, PROBES
from benchmarks.reader import PROBES_TIMEOUT_S, SETTLED_S

HEAD = """\
# Performance of the transports

The cost of forwarding a model's deltas, and their latency on the way provider → llm_gateway → orchestrator → client.
Everything is on one machine, with one process per service and the simulated provider. `python -m trials bench
transports --write` writes this page. For the cost of runs at each entrance, see [performance](performance.md).

![CPU time per delta by load, for each transport and its peers](performance-transports.svg)
"""

METHOD = """\
## How it is taken

* All ways run in one session and take turns, {rounds} rounds for each load; figures are medians over the rounds.
  **direct** is a reader at the provider's own socket. **aiohttp relay** only forwards bytes: the minimum in Python.
  **LiteLLM** is its proxy, one hop, in its fastest configuration: one process, no keys, no database, no callbacks.
  **h2** and **grpcio** are complete suites with that transport in all services (`HEADRACE_TRANSPORT`), two hops and a
  log on disk.
* A load opens its streams at {opened:.0f} a second. {settled:.0f} s after the last one has begun, deltas are counted
  for {window:.0f} s, and the CPU time charged to each process is taken between the same two moments. Beginning and
  ending a run is not included, except at full speed, where streams of 4,000 deltas follow each other. At full speed
  the simulator writes 64 frames at a time, like a provider's bytes that wait in a slower reader's socket.
* A delta of a paced stream is sent every 30 ms, whatever its reader does. "Added" is a percentile of this way minus
  the same percentile of the direct reader in the same round. The first delta is that of {probes} additional streams,
  opened one after the other during the load; if none has it within {probing:.0f} s, that time is the figure.
* The reader is a separate process that parses no deltas. For a suite it is a gRPC client from `services.runtime`,
  with that suite's transport; for other ways it reads HTTP from its socket. It and the simulator share the same
  cores: see the last table.
* Resident memory is measured first, before anything else has filled the allocators.
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
