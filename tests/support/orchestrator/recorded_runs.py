"""Runs of each kind; models and tools answer by the request alone, so a repeated request gets the same answer."""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncGenerator, Callable
from typing import Any, TypeAlias

from headrace.errors import ProviderAuthentication
from headrace.v1 import llm_pb2, tools_pb2
from tests.support.orchestrator import plans
from tests.support.orchestrator.steps import Step, answer, call, call_tool, content, finish, reasoning
from tests.support.orchestrator.suite import Suite

ONCE, LOOKS = "act", "look"
LOOK = call(LOOKS, '{"at":1}')
ACT = call(ONCE, '{"n":1}', call_id="call_2")


def planned(request: llm_pb2.ChatRequest) -> list[Step]:
    """A model that plans three tasks, two of which may run in parallel, looks once for each, and sums up."""
    has_calls = any(message.tool_calls for message in request.messages)
    match request.stage:
        case "plan" if has_calls:
            return answer("Nothing more.")
        case "plan":
            group = {"group": "g"}
            return plans.add({"description": "a"} | group, {"description": "b"} | group, "c")
        case "summary":
            return answer("All ", "three.")
        case _ if request.tool_choice == "_plan_update_task_":
            return plans.update(request)
        case _:
            look_id = f"look_{plans.task_id(request)}"
            if any(message.tool_call_id == look_id for message in request.messages):
                return reasoning("so") + content("did ", plans.task_of(request)) + finish()
            return call_tool(LOOKS, '{"at":1}', call_id=look_id)


def breaking(request: llm_pb2.ChatRequest) -> list[Step]:
    """A model that breaks off in the middle of one of three tasks."""
    tasks = plans.add(*({"description": f"part {n}", "group": "a"} for n in range(3)))
    if request.stage == "execute" and plans.task_of(request) == "part 1" and request.messages[-1].role == "tool":
        return [*content("half"), ProviderAuthentication("no key")]
    return plans.model(tasks, work=plans.busy, planner=plans.busy_planner)(request)


def checking(request: llm_pb2.ChatRequest) -> list[Step]:
    """A model that looks, drafts an answer, corrects it, and summarises its reasoning."""
    if request.stage == "reasoning_summary":
        return answer("I ", "looked.")
    if "<draft>" in plans.last_text(request):
        return answer("It ", "is ", "five.")
    if request.messages[-1].role == "tool":
        return reasoning("so") + content("It is ", "four.") + finish()
    return reasoning("hm") + content("Let me ", "look.") + LOOK + finish("tool_calls")


def delegating(request: llm_pb2.ChatRequest) -> list[Step]:
    """A model that calls two sub-agents: one looks itself, the other calls a third one that looks."""
    messages = [message for message in request.messages if message.role != "system"]
    task = messages[0].content[0].text
    if any(message.role == "tool" for message in messages):
        return reasoning("so") + content("did ", task) + finish()
    if task == "hello":
        return _delegated("a", index=0) + _delegated("b", index=1) + finish("tool_calls")
    if task == "a":
        return _delegated("c") + finish("tool_calls")
    return call_tool(LOOKS, '{"at":1}', call_id=f"look_{task}")


def _delegated(task: str, *, index: int = 0) -> list[Step]:
    return call("call_subagent", json.dumps({"task": task}), index=index, call_id=f"call_{task}")


Play: TypeAlias = list[list[Step]] | Callable[[llm_pb2.ChatRequest], list[Step]]

PICTURE: list[Step] = [llm_pb2.LlmDelta(media=llm_pb2.LlmMedia(data=b"png", mime_type="image/png"))]

RUNS: dict[str, tuple[str, Play, dict[str, Any]]] = {
    "text": ("oneshot", [content("All ", "is ", "good.")], {}),
    "thoughts and text": ("oneshot", [reasoning("hm", " hm") + content("Fine.")], {}),
    "a picture": ("oneshot", [content("Here.") + PICTURE], {}),
    "pictures beside a tool": ("react", [content("See.") + PICTURE + LOOK, PICTURE], {}),
    "a tool": ("react", [reasoning("so") + LOOK, content("Seen.")], {}),
    "what is done once": ("react", [content("I act.") + ACT, content("Done.")], {}),
    "three steps": (
        "react",
        [LOOK, reasoning("then") + ACT, call(LOOKS, '{"at":2}', call_id="call_3"), content("So.")],
        {},
    ),
    "a failing tool": ("react", [call("fails"), content("It ", "failed.")], {}),
    "several at a time": (
        "react",
        [LOOK + call(ONCE, '{"n":1}', index=1, call_id="call_2"), content("Both.")],
        {"react": {"parallelToolCalls": True}},
    ),
    "several, one runs": ("react", [LOOK + call(ONCE, "{}", index=1, call_id="call_2"), content("One.")], {}),
    "steps used up": ("react", [LOOK, ACT, content("Enough.")], {"react": {"maxSteps": 2}}),
    "the budget used up": ("react", [LOOK, content("The ", "end.")], {"budget": {"maxModelCalls": 1}}),
    "a plan": ("react", planned, plans.agent()),
    "a plan, two at a time": ("react", planned, plans.agent("PARALLEL")),
    "a recursive plan": ("react", plans.busy_model(), plans.agent("RECURSIVE") | {"budget": {"maxModelCalls": 60}}),
    "a plan, a task of which fails": ("react", breaking, plans.agent("PARALLEL")),
    "a checked answer, its thoughts summed up": (
        "react",
        checking,
        {"verify": "SECOND_PASS_FIX", "output": "REASONING_SUMMARY"},
    ),
    "sub-agents": ("react", delegating, {"subagents": ["oneshot"], "react": {"parallelToolCalls": True}}),
}


class World:
    """A model that plays turns by the request's number of answers, and tools that record effects like real ones."""

    def __init__(self, suite: Suite, play: Play) -> None:
        self.runs: Counter[tuple[str, str]] = Counter()
        """How often each effect of a tool happened."""
        self._play = play
        self._tools = suite.tools
        self._done: dict[str, tools_pb2.ToolOutcome] = {}
        suite.llm.reply = self._reply
        suite.tools.tools.append(
            tools_pb2.Tool(name=ONCE, parameters='{"type":"object"}', kind="backend", effect="once")
        )
        suite.tools.tools.append(
            tools_pb2.Tool(name="fails", parameters='{"type":"object"}', kind="backend", effect="read")
        )
        for tool in suite.tools.tools:
            if tool.name == LOOKS:
                tool.effect = "read"
        suite.tools.execute, suite.tools.check = self._execute, self._check

    def _reply(self, request: llm_pb2.ChatRequest) -> list[Step]:
        if callable(self._play):
            return self._play(request)
        answers = sum(message.role == "assistant" for message in request.messages)
        turn = self._play[min(answers, len(self._play) - 1)]
        has_call = any(isinstance(step, llm_pb2.LlmDelta) and step.HasField("tool_call") for step in turn)
        return [*turn, *finish("tool_calls" if has_call else "stop")]

    async def _execute(self, request: tools_pb2.ExecuteRequest) -> AsyncGenerator[tools_pb2.ToolDelta]:
        yield tools_pb2.ToolDelta(output=tools_pb2.ToolOutputDelta(stream="stdout", delta="at it\n"))
        if request.effect_key not in self._done or request.tool_name != ONCE:
            await asyncio.sleep(0.005)
            self.runs[request.tool_name, request.effect_key] += 1
            text = json.dumps({"saw": json.loads(request.arguments)}).ljust(self._tools.result_chars, "·")
            self._done[request.effect_key] = tools_pb2.ToolOutcome(ok=request.tool_name != "fails", result=text)
        yield tools_pb2.ToolDelta(result=self._done[request.effect_key])

    def _check(self, key: str) -> tools_pb2.CheckEffectResponse:
        outcome = self._done.get(key)
        return tools_pb2.CheckEffectResponse(state="done" if outcome else "not_done", result=outcome)
