"""docs/performance.md: what was measured, on what, and how to read it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from benchmarks.entrances.measuring import SETTLE_S
from benchmarks.grid import Grid

HEAD = """\
# Performance

What runs and deltas cost and wait at each entrance of the suite, beside peers in the same run, everything on one
machine. Written by `make performance`, which takes about {minutes:.0f} minutes; no way that was measured is left out.
What a delta costs on each transport, on steady streams and flat out: [transports](performance-transports.md).
"""

LEFT = """\
## Where it goes, and what is left

* **A run's CPU**, as py-spy sees short runs over SSE, 16 at once, in one process: writing the log and waiting for
  `fdatasync` 16 %, the index's thread 6 %, the rest of memory 12 %, orchestrator 15 %, llm_gateway 10 %, facade 7 %,
  calls between them (credentials, rules of fields, deadlines, back-pressure) 21 %, the loop 6 %, log lines 2 %,
  shared parts 6 %. It is flat. What is left is the number of steps between a question and its end, a third of them
  for the log that no peer keeps.
* **The first delta** waits for what the hand-written server's waits for, for the query's `fdatasync`, and for the
  Python of the steps before the model is asked.
* **The slowest deltas of 160 streams**: in one process a run that begins shares the loop with the streams beside it.
  With `--split` it has another core, for more CPU a delta: the form for many streams on one machine.
* **The Go gateway** parses each delta from HTTP/2 and writes it as JSON in a process of its own. The embedded facade
  takes it in the same process, its text already as JSON.
* **Replicas**: `python -m benchmarks.replicated` keeps each process to a core. On two cores the reader, the provider
  and memory share them, so runs/s grow less there than each replica's own CPU says.
* **At rest** most is modules: with nothing but them a Python has 89 MB for the services, 70 MB for tools (HTTP client,
  contract, definitions, pictures), and `up` itself has 17 MB. Tools stays apart: it starts what models ask for.
* Machines differ more than versions do: compare ways within a page, not pages.
"""

METHOD = """\
## How it is taken

* All ways stand before one provider, run for the whole time and are asked in turn, {rounds} round(s) of
  {window:.0f} s for each load, after {warm:.0f} s that are not counted. CPU is what the operating system has
  charged **all processes** of the way in that window: for a suite `headrace up`, tools, the Go gateway and
  PostgreSQL too; the provider and the reader are not in it.
* Each stream asks again as soon as its answer has ended, in a new chat: the figures have beginnings and ends of
  runs in them. The provider stamps each delta; "late" is from there to the reader, and so are the waits of the two
  processes' own loops. The first delta is counted from the question, the provider's own time included.
* **gRPC**, **SSE**, **OpenAI face** and **Go gateway** are entrances of one suite in its default form, one process;
  the Go gateway is a process beside it. **split** is a process for each service. **FastAPI + httpx** is what one
  writes oneself (`benchmarks/peers/programs`): its short runs and streams pass the provider's stream on, its REACT
  runs are a loop with one tool in the process. **LangGraph** is its ready-made agent behind FastAPI. **LiteLLM** is
  its proxy at its fastest. None of the peers stores anything; the suite has each query on disk before it asks the
  model.
* A dash stands where no run began, or none ended, in the window. Reader and provider have their part of the same
  cores. Where a way is behind 33 deltas/s a stream, a core is full.
* Chats are copies of a short one. The first start with them has no index and makes it while it serves.
* Bifrost is no peer here: its Go module could not be had from the module proxy.
"""


def write_page(
    about: Mapping[str, str],
    grids: Sequence[Grid],
    notes: Sequence[str],
    *,
    rounds: int,
    window_s: float,
    minutes: float,
) -> str:
    facts = "".join(f"| {name} | {value} |\n" for name, value in about.items())
    tables = "\n".join(grid.written() for grid in grids)
    said = "".join(f"* {note}\n" for note in notes)
    notices = f"## Notices\n\n{said}\n" if said else ""
    method = METHOD.format(rounds=rounds, window=window_s, warm=SETTLE_S)
    machine = f"## Machine\n\n| | |\n| :-- | :-- |\n{facts}"
    return f"{HEAD.format(minutes=minutes)}\n{tables}\n{notices}{LEFT}\n{method}\n{machine}"
