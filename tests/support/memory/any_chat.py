"""Any chat that Hypothesis can generate."""

from contextlib import suppress
from typing import Any

from hypothesis import strategies as st

from headrace.errors import ChatBusy, NotFound, OutOfRange, Overloaded, StaleLease
from headrace.v1 import llm_pb2, memory_pb2
from tests.support.memory.contexts import call_ids, log_messages, text_of
from tests.support.memory.messages import call
from tests.support.memory.summarising import SUMMARY, Compacted, Summariser, compact
from tests.support.memory.writing import Memory, new_id, query_line, run_line, step_line

CONTEXTS = ("", "subagent-00000001")


LIMITS = memory_pb2.ModelLimits(provider_key="p", model="gpt-4o", context_window_tokens=100_000, output_tokens=100)


ALL: dict[str, Any] = {"message_history_max": 100}


runs = st.integers(0, 2)


contexts = st.sampled_from(CONTEXTS)


events = st.one_of(
    st.tuples(st.just("append"), runs, contexts, st.lists(log_messages, min_size=1, max_size=6)),
    st.tuples(st.just("compact"), runs, contexts, st.sampled_from([SUMMARY, "", Overloaded("no")])),
    st.tuples(st.just("end"), runs, st.just(""), st.none()),
    st.tuples(st.just("cancel"), runs, contexts, st.lists(st.builds(call, call_ids), max_size=3)),
    st.tuples(st.just("fork"), st.integers(1, 12), st.just(""), st.none()),
    st.tuples(st.just("delete"), runs, st.just(""), st.none()),
    st.tuples(st.just("ask"), runs, st.just(""), st.none()),
    st.tuples(st.just("revert"), st.integers(0, 9), st.just(""), st.sampled_from(["all", "model"])),
)


class Chat:
    """A chat to which generated events happen."""

    def __init__(self, memory: Memory, summariser: Summariser) -> None:
        self.memory, self.summariser = memory, summariser
        self.id = new_id()
        self.runs: list[str] = []

    async def ask(self) -> None:
        self.runs.append(new_id())
        await self.memory.append(self.id, self.runs[-1], query_line("hi " * 50))

    async def meet(self, what: str, run: int, context_id: str, given: Any) -> None:
        run_id = self.runs[run % len(self.runs)]
        own = {"context_id": context_id} if context_id else {}
        try:
            match what:
                case "append":
                    await self.memory.append(self.id, run_id, step_line(*given, **own))
                case "end":
                    await self.memory.append(self.id, run_id, run_line())
                case "cancel":
                    lines = [step_line(*given, **own)] if given else []
                    await self.memory.append(self.id, run_id, *lines, run_line("cancelled"))
                case "fork":
                    await self.fork(run)
                case "delete":
                    await self.delete()
                case "ask":
                    await self.ask()
                case "revert":
                    await self.revert(run, given, run_id)
                case _:
                    await self.compact(run_id, own, given)
        except StaleLease:
            pass  # the run has ended
        except NotFound:
            pass  # no such checkpoint, or a run that was reverted
        except ChatBusy:
            pass  # a run goes on
        except OutOfRange:
            pass  # the chat has fewer lines than were to be copied

    async def fork(self, n: int) -> None:
        """Copy the first `n` lines, and continue in the copy."""
        before = await self.contexts()
        copy = await self.memory.fork(self.id, seq=n)
        assert await self.contexts() == before, "the two go their own ways"
        self.id = copy
        starts = (event.run_start for event in (await self.memory.chat(chat_id=copy)).events)
        self.runs = [start.run_id for start in starts if start.run_id]
        await self.ask()

    async def revert(self, checkpoint: int, scope: str, run_id: str) -> None:
        """Revert to a checkpoint: for the model what precedes the run, or for all once every run has ended."""
        if scope == "all":
            await self.end_all()
            run_id = ""
        await self.memory.revert(self.id, checkpoint, scope=scope, run_id=run_id)

    async def end_all(self) -> None:
        for run_id in self.runs:
            with suppress(StaleLease, NotFound):
                await self.memory.append(self.id, run_id, run_line("cancelled"))

    async def delete(self) -> None:
        """End all runs, delete the chat, and begin it anew."""
        await self.end_all()
        await self.memory.delete(self.id)
        assert await self.contexts() == []
        self.runs = []
        await self.ask()

    async def compact(self, run_id: str, own: dict[str, str], answer: Any) -> None:
        before = await self.memory.context(self.id, run_id, **ALL, **own)
        self.summariser.answers = [answer]
        compaction = await compact(self.memory, self.id, run_id, limits=LIMITS, **ALL, **own)
        after = await self.memory.context(self.id, run_id, **ALL, **own)
        check_compacted(compaction, before, after)

    async def contexts(self) -> list[list[llm_pb2.Message]]:
        """Return the contexts of all runs, and of a sub-agent in each."""
        found: list[list[llm_pb2.Message]] = []
        for run_id in self.runs:
            for context_id in CONTEXTS:
                own = {"context_id": context_id} if context_id else {}
                with suppress(NotFound):  # it was reverted
                    found.append(await self.memory.context(self.id, run_id, **own))
        return found


def check_compacted(compaction: Compacted, before: list[llm_pb2.Message], after: list[llm_pb2.Message]) -> None:
    if compaction.kinds[-1] == "fail":
        assert after == before
        return
    assert "The conversation was compacted" in text_of(after[0])
    assert len(after) <= 1 + len(before)
    retained = after[1:]
    whole = 0
    while whole < len(retained) and retained[-1 - whole] == before[-1 - whole]:
        whole += 1
    assert len(retained) - whole <= 1, "the retained are the last of what was there"
    assert len(retained) == whole or retained[0].role == "user", "behind what they answer"
