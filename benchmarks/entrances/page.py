"""docs/performance.md: what was measured, on what, and how to read it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from benchmarks.entrances.measuring import SETTLE_S
from benchmarks.grid import Grid

HEAD = """\
# Performance

What runs and deltas cost and wait at each entrance of the suite, beside peers in the same run, everything on one
machine. Written by `python -m trials bench entrances --write`, which takes about {minutes:.0f} minutes; no way that was
measured is left out.
"""

LEFT = """\
## Where it goes, and what is left

* **A run's CPU**: the table of samples above. It is flat: no function of ours has 2 % of it. What is left is the
  number of steps between a question and its end: a plain run is four calls between services, two appends to a log
  that no peer keeps, three log lines and some thirty events.
* **The first delta** waits for what the hand-written server's waits for, for the query's `fdatasync`, and for the
  Python of the steps before the model is asked: "the first delta by step" says how long for each.
* **The slowest deltas of 160 streams**: in one process a run that begins or ends shares the loop with the streams
  beside it, some milliseconds of Python in callbacks of less than one. Where several come together, all streams wait
  for them; the longest single stalls, collections of garbage, are gone since ended runs leave none. With `--split` a
  run that begins has another core, for more CPU a delta: the form for many streams on one machine.
* **The Go gateway** is a process of its own that a delta wakes up. Of its time, its own code and the JSON have 3 %,
  grpc-go's receiving 11 %, writing to sockets 15 %; Go's scheduler has 23 % and its monitor thread, which each waking
  up wakes, 22 % (perf, 40 streams, 2026-11). Half of the embedded facade's cost, the aim, is what a relay in C takes
  that does nothing but read and write (docs/decisions/0009: 16 µs at 40 streams).
* **1,000 silent streams**: each is some 650 Python objects with 60 KB, the largest piece of which is 4 KB
  (tracemalloc): four tasks with 36 coroutines below them, ten context managers, three calls with their headers, a run
  with its parts. SSE has fewer calls on sockets. Less needs fewer layers.
* **Replicas**: `python -m benchmarks.replicated` keeps each process to a core. On two cores the reader, the provider
  and memory share them, so runs/s grow less there than each replica's own CPU says.
* **At rest** most is modules: with nothing but them a Python has 89 MB for the services, 70 MB for tools (HTTP
  client, contract, definitions, pictures), and `up` itself has 17 MB. Tools stays apart: it starts what models ask
  for. No module has more than 7 MB, and trimming the heap or dropping debug tables gives 1 MB together.
* **1,000 agents**: their files are looked at for changes every 2 s, which is the CPU at rest above that of 10; at ten
  runs a second it is a quarter of a millisecond a run.
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
* Chats are copies of a short one. The first start with them has no index: it serves
  when those that were changed last are in it, and makes the rest behind.
* "The first delta by step": the provider stamps its first delta as soon as it is asked; until then is the first step,
  and its p50 and p99 are of other runs than those of the whole. Samples of the suite's process are py-spy's, of the
  thread that has the interpreter, each counted for the innermost part that it is in.
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
