"""Writes docs/performance.md: the measurements, the machine, and how to read them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from benchmarks.counts.budgets import describe_budgets, describe_parts
from benchmarks.entrances.measuring import SETTLE_S
from benchmarks.grid import Grid

HEAD = """\
# Performance

The cost and latency of runs and deltas at each entrance of the suite, compared with peers in the same session, all on
one machine. `python -m trials bench entrances --write` writes this page in about {minutes:.0f} minutes; it omits no
measured way.
"""

COUNTS = """\
## Counts

What a short run, a delta, a REACT run of three steps and an attach cost in the suite's process, the same on every
machine (`python -m benchmarks.counts --write`; a test holds each figure). Calls are those of the main thread,
"functions" are different ones that run at least once, and a dash means not counted. The provider sends each delta when
the reader has the one before, so every delta is read and written alone.

<!-- generated: counts -->
{counts}
<!-- end -->

Python calls by the suite's own parts, without those of libraries:

<!-- generated: count-parts -->
{parts}
<!-- end -->
"""

LEFT = """\
## Where it goes, and what is left

* **A run's CPU**: see "Counts" and its parts. No function of ours takes 2 %; a run costs what the number of its steps
  costs: a plain run makes four calls between services and two appends to a log (which no peer keeps), and writes three
  log lines and some thirty events. It calls three times as many different functions as the hand-written server, and a
  function that runs once a run is slower than one that runs for every delta.
* **The first delta** waits for the same things as the hand-written server's, plus the query's `fdatasync` and the
  Python code of the steps before the model is called. "The first delta by step" shows how long each takes.
* **The slowest deltas of 160 streams**: in one process, a run that begins or ends shares the event loop with the
  other streams, and takes some milliseconds of Python in callbacks of less than one each. If several coincide, all
  streams wait for them. The longest single stalls, garbage collections, are gone since ended runs leave no garbage.
  With `--split`, a run that begins uses another core, at more CPU per delta: use it for many streams on one machine.
* **The Go gateway** is a separate process in front of the embedded facade, and each delta wakes it up, so its CPU comes
  on top. Take it for what grpc-gateway's users have around it, not for speed.
* **1,000 silent streams**: each has some 570 Python objects in 51 KB, with the largest piece 1.4 KB (tracemalloc): four
  tasks with 36 coroutines below them, three calls with their headers, and a run with its parts. SSE has fewer calls on
  sockets. A smaller footprint needs fewer layers.
* **Replicas**: `python -m benchmarks.replicated` pins each process to a core. On two cores the reader, the provider
  and memory share them, so runs/s grow less than each replica's own CPU suggests.
* **At rest**, modules take most of the memory: a Python process with only the imports has 89 MB for the services and
  70 MB for tools (HTTP client, contract, definitions, pictures), and `up` itself has 17 MB. Tools remains a separate
  process because it starts commands for models. No module takes more than 7 MB; trimming the heap and dropping debug
  tables together save 1 MB.
* **1,000 agents**: the orchestrator checks their files for changes every 2 s, which explains the CPU at rest above
  that of 10 agents; at ten runs a second this is a quarter of a millisecond per run.
* Machines differ more than versions do: compare ways within a page, not pages.
"""

METHOD = """\
## How it is taken

* All ways use the same provider, run throughout, and take turns: {rounds} round(s) of {window:.0f} s for each load,
  after {warm:.0f} s that are not counted. CPU is what the operating system charged **all processes** of the way in
  that window: for a suite this includes `headrace up`, tools, the Go gateway and PostgreSQL, but not the provider and
  the reader.
* Each stream asks again in a new chat as soon as its answer has ended, so the figures include beginnings and ends of
  runs. The provider stamps each delta; "late" is the time from the stamp to the reader, including waits in these two
  processes' own loops. The first delta is measured from the question and includes the provider's own time.
* **gRPC**, **SSE**, **OpenAI adapter** and **Go gateway** are entrances of one suite in its default form, one process;
  the Go gateway is an additional process. **split** has one process per service. **FastAPI + httpx** is a
  hand-written server (`benchmarks/peers/programs`): for short runs and streams it forwards the provider's stream, and
  its REACT runs are a loop with one tool in the process. **LangGraph** is its ready-made agent behind FastAPI.
  **LiteLLM** is its proxy in its fastest configuration. **Bifrost core** is its Go library behind net/http. None of
  the peers stores anything; the suite has each query on disk before it calls the model.
* A dash means that no run began, or none ended, in the window. Reader and provider share the same cores. A way keeps
  up if it delivers at least 32.5 deltas/s for each stream; otherwise a core is full, and its times say little.
* Chats are copies of a short one. The first start with them has no index: it serves as soon as the index has the most
  recently changed chats, and adds the others in the background. Its other figures are taken once all are indexed.
* "The first delta by step": the provider stamps its first delta as soon as it is called, which ends the first step.
  The p50 and p99 of a step and of the whole come from different runs.
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
    lines = "".join(f"* {note}\n" for note in notes)
    notices = f"## Notices\n\n{lines}\n" if lines else ""
    method = METHOD.format(rounds=rounds, window=window_s, warm=SETTLE_S)
    machine = f"## Machine\n\n| | |\n| :-- | :-- |\n{facts}"
    counts = COUNTS.format(counts=f"\n{describe_budgets()}\n", parts=f"\n{describe_parts()}\n")
    return f"{HEAD.format(minutes=minutes)}{counts}\n{tables}\n{notices}{LEFT}\n{method}\n{machine}"
