"""A memory service whose summaries come from a script, over a real gateway server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import orjson

from headrace.streams import reading
from headrace.v1 import agent_pb2, common_pb2, llm_pb2, llm_pb2_grpc, memory_pb2
from services.runtime.process.config import ServerSettings
from services.runtime.rpc.channels import open_channel
from services.runtime.rpc.server import GrpcService, serving_grpc
from tests.support.memory.messages import call, content, result
from tests.support.memory.serving import memory_over
from tests.support.memory.writing import Memory, new_id, run_line, step_line
from tests.support.summaries import write_summary


@dataclass(frozen=True, slots=True)
class Ended:
    """An answer that ends with this finish reason."""

    text: str
    finish: str


@dataclass(frozen=True, slots=True)
class Slow:
    """An answer in pieces, one a second; it fails with the error at the end, if there is one."""

    text: str
    seconds: int
    error: Exception | None = None


Answer: TypeAlias = str | Ended | Slow | Exception | float | Callable[[llm_pb2.ChatRequest], str]
"""An answer of the model: a text, its finish, its duration, an error, seconds of silence, or a function of the
request."""

SUMMARY = write_summary("They spoke of the weather.")
REFUSAL = "I'm sorry, I can't help with that."
CUT = Ended(SUMMARY[: SUMMARY.index("2. Key")], "length")
LOOP = (
    "<summary>\n" + "\n".join(f"{n}. Section: " + "The user wants a boat. " * 40 for n in range(1, 10)) + "</summary>"
)
"""What models return in place of a summary."""

COST = common_pb2.Usage(input_tokens=900, output_tokens=50, model_calls=1)


# Any: the stub wants every RPC implemented.
_Servicer: Any = llm_pb2_grpc.LlmServiceServicer


class Summariser(_Servicer):
    """Answers with its script, repeating the last answer, and records the requests."""

    def __init__(self, *answers: Answer) -> None:
        self.answers: list[Answer] = list(answers)
        self.requests: list[llm_pb2.ChatRequest] = []
        self.asked = asyncio.Event()
        """Set by the first request."""
        self.gate = asyncio.Event()
        """Waited for by every answer."""
        self.gate.set()
        self.open = 0

    async def StreamChat(self, request: Any, context: Any) -> AsyncGenerator[llm_pb2.LlmDelta]:
        self.requests.append(request)
        self.asked.set()
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        self.open += 1
        try:
            await self.gate.wait()
            async for delta in self._play(answer, request):
                yield delta
        finally:
            self.open -= 1

    async def _play(self, answer: Answer, request: llm_pb2.ChatRequest) -> AsyncGenerator[llm_pb2.LlmDelta]:
        if isinstance(answer, Exception):
            raise answer
        if isinstance(answer, int | float):
            await asyncio.sleep(answer)
            return
        if isinstance(answer, Slow):
            size = -(-len(answer.text) // answer.seconds)
            for start in range(0, len(answer.text), size):
                await asyncio.sleep(1)
                yield llm_pb2.LlmDelta(content=answer.text[start : start + size])
            if answer.error is not None:
                raise answer.error
            answer = Ended("", "stop")
        text = answer(request) if callable(answer) else answer
        ended = text if isinstance(text, Ended) else Ended(text, "stop")
        for start in range(0, len(ended.text), 4096):
            yield llm_pb2.LlmDelta(content=ended.text[start : start + 4096])
        yield llm_pb2.LlmDelta(usage=COST)
        yield llm_pb2.LlmDelta(finish=llm_pb2.LlmFinish(reason=ended.finish))


@dataclass(frozen=True, slots=True)
class Compacted:
    """The events of a whole Compact stream."""

    kinds: list[str]
    last: Any
    """Its last delta's payload."""
    start: agent_pb2.CompactionStart
    usage: list[common_pb2.Usage] = field(default_factory=list[common_pb2.Usage])


async def compact(memory: Memory, chat_id: str, run_id: str, **fields: Any) -> Compacted:
    """Compact a context to the end of the stream, within LIMITS if no others are given."""
    given: dict[str, Any] = {"trigger": "auto", "limits": LIMITS} | fields
    request = memory_pb2.CompactRequest(chat_id=chat_id, run_id=run_id, **given)
    deltas: list[memory_pb2.CompactDelta] = []
    async with asyncio.timeout(4000), reading(memory.stub.Compact(request, timeout=4000)) as replies:
        async for delta in replies:
            deltas.append(delta)
    kinds = [str(delta.WhichOneof("delta")) for delta in deltas]
    last = getattr(deltas[-1], kinds[-1])
    return Compacted(kinds, last, deltas[0].start, [delta.usage for delta in deltas if delta.HasField("usage")])


@asynccontextmanager
async def serving_llm(models: Any) -> AsyncGenerator[tuple[llm_pb2_grpc.LlmServiceAsyncStub, str]]:
    """Serve a gateway with these models; yield its stub and address."""
    gateway = GrpcService("headrace.v1.LlmService", models, llm_pb2_grpc.add_LlmServiceServicer_to_server)
    settings = ServerSettings(listen="127.0.0.1:0", drain_s=0)
    async with serving_grpc(settings, [gateway]) as running, open_channel(running.addresses[0]) as channel:
        yield llm_pb2_grpc.LlmServiceStub(channel), running.addresses[0]


@asynccontextmanager
async def summarising(folder: Path, summariser: Summariser, **options: Any) -> AsyncGenerator[Memory]:
    """Serve memory over the logs of `folder`, with a gateway that uses `summariser`."""
    async with serving_llm(summariser) as (llm, _), memory_over(folder, llm=llm, **options) as memory:
        yield memory


def texts(messages: Sequence[llm_pb2.Message]) -> Iterator[str]:
    return ("".join(part.text for part in message.content) for message in messages)


LIMITS = memory_pb2.ModelLimits(provider_key="p", model="gpt-4o", context_window_tokens=20_000, output_tokens=1_000)


WORDS = "one two three four five six seven eight nine ten " * 5


async def converse(memory: Memory, runs: int = 10, question: str = "the last question") -> tuple[str, str]:
    """Make a chat of `runs` ended runs of four messages, and the query of another one."""
    chat_id = new_id()
    for index in range(runs):
        _, run_id = await memory.begin(f"question {index}", chat_id)
        await memory.append(
            chat_id,
            run_id,
            step_line(call(f"t{index}"), result(f"t{index}", f"result {index} {WORDS}")),
            step_line(content(f"answer {index} {WORDS}", msg_id="m_00000002")),
            run_line(),
        )
    return await memory.begin(question, chat_id)


async def work(memory: Memory, chat_id: str, run_id: str, steps: int, **step: str) -> None:
    """Append steps of a call and its result, each in an answer of its own."""
    for index in range(steps):
        line = step_line(call(f"t{index}", msg_id=new_id()), result(f"t{index}", WORDS), **step)
        await memory.append(chat_id, run_id, line)


def say_more(count: int, text: str = WORDS) -> list[memory_pb2.LogLine]:
    """Return steps of a run, each an answer of its own."""
    return [step_line(content(text, msg_id=new_id())) for _ in range(count)]


def lines_of(folder: Path, chat_id: str) -> list[dict[str, Any]]:
    return [orjson.loads(line) for line in (folder / f"{chat_id}.json").read_bytes().splitlines()]
