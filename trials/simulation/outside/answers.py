"""Answers of a simulated world's model, determined by the request and random choices."""

import json
import re
from random import Random

from headrace.v1 import llm_pb2
from tests.support.summaries import write_summary
from trials.simulation.outside.outside import ASKS, EFFECTS, FORM, WORDS

TURNS_WITH_CALLS_MAX = 3
"""Maximum number of turns of a run with tool calls; then the model answers."""

SUBAGENT = "call_subagent"

ADD, RESTATE, UPDATE = "_plan_add_tasks_", "_plan_restate_tasks_", "_plan_update_task_"

OBEDIENCE = 0.9
"""Share of the turns in which a planner obeys."""

SMALL = "small"
"""Model with a small window and long answers."""

LONG_WORDS = 350

SUMMARY_CHARS = 60
"""Length of one delta of a summary."""

OUTPUT_TOKENS = 5
"""Reported output tokens of an answer, in addition to ten input tokens; half of the limit if there is one."""

TASK_ID = re.compile(r"\btask ([0-9a-f]{8})\b")
LEFT = re.compile(r"^- ([0-9a-f]{8}): ", re.MULTILINE)


def choose_answer(request: llm_pb2.ChatRequest, random: Random) -> list[llm_pb2.LlmDelta]:
    if request.stage == "compact":
        text = write_summary("They spoke of trees.")
        pieces = [text[at : at + SUMMARY_CHARS] for at in range(0, len(text), SUMMARY_CHARS)]
        return [*(llm_pb2.LlmDelta(content=piece) for piece in pieces), *_finish("stop", request)]
    deltas = [llm_pb2.LlmDelta(reasoning=f"{random.choice(WORDS)} ") for _ in range(random.choice((0, 0, 2)))]
    calls = [] if request.tool_choice == "none" else _choose_calls(request, random)
    for index, (name, given) in enumerate(calls):
        deltas += _call(index, name, given, random)
    if calls:
        return [*deltas, *_finish("tool_calls", request)]
    if request.model == SMALL:
        deltas.append(llm_pb2.LlmDelta(content=" ".join(random.choices(WORDS, k=LONG_WORDS))))
    deltas += [llm_pb2.LlmDelta(content=f"{random.choice(WORDS)} ") for _ in range(random.randint(1, 8))]
    return [*deltas, *_finish("stop", request)]


def _choose_calls(request: llm_pb2.ChatRequest, random: Random) -> list[tuple[str, dict[str, object]]]:
    offered = {tool.name for tool in request.tools}
    if (planning := _choose_planning(request, offered, random)) is not None:
        return [planning] if random.random() < OBEDIENCE else []
    turns = sum(1 for message in _since_question(request) if message.tool_calls)
    names = [name for name in (*EFFECTS, FORM, SUBAGENT) if name in offered]
    if not names or turns >= TURNS_WITH_CALLS_MAX or random.random() >= 0.7:
        return []
    if ASKS in names:
        return [(random.choice((ASKS, FORM)), _give(request, random))]
    chosen = [random.choice(names) for _ in range(random.choice((1, 1, 2, 3)))]
    return [(name, _task(random) if name == SUBAGENT else _give(request, random)) for name in chosen]


def _choose_planning(
    request: llm_pb2.ChatRequest, offered: set[str], random: Random
) -> tuple[str, dict[str, object]] | None:
    """Return the call that a planner or a task must make now; None if it is free to choose."""
    asked = next((message for message in reversed(request.messages) if message.role == "user"), llm_pb2.Message())
    text = "".join(part.text for part in asked.content)
    if RESTATE in offered and request.tool_choice == RESTATE:
        kept = [task_id for task_id in LEFT.findall(text) if random.random() < 0.7]
        tasks = [{"taskId": task_id, "description": f"restated {random.choice(WORDS)}"} for task_id in kept]
        return RESTATE, {"tasks": [*tasks, *_make_tasks(random, random.choice((0, 0, 1)))]}
    if ADD in offered and request.tool_choice == "auto" and random.random() < 0.6:
        return None
    if ADD in offered:
        return ADD, {"tasks": _make_tasks(random, random.randint(1, 3))}
    found = TASK_ID.findall(text)
    if UPDATE in offered and found and (request.tool_choice == UPDATE or random.random() < 0.2):
        return UPDATE, {"taskId": found[0], "status": random.choice(("completed", "completed", "failed", "skipped"))}
    return None


def _make_tasks(random: Random, count: int) -> list[dict[str, object]]:
    tasks: list[dict[str, object]] = []
    for _ in range(count):
        task: dict[str, object] = {"description": f"find a {random.choice(WORDS)}"}
        if random.random() < 0.6:
            task["group"] = random.choice("gh")
        if random.random() < 0.2:
            task["composite"] = True
        tasks.append(task)
    return tasks


def _since_question(request: llm_pb2.ChatRequest) -> list[llm_pb2.Message]:
    messages = list(request.messages)
    last = max((at for at, message in enumerate(messages) if message.role == "user"), default=0)
    return messages[last:]


def _give(request: llm_pb2.ChatRequest, random: Random) -> dict[str, object]:
    given: dict[str, object] = {"tree": random.choice(WORDS), "number": random.randrange(1000)}
    return given | {"words": LONG_WORDS} if request.model == SMALL else given


def _task(random: Random) -> dict[str, object]:
    return {"agentKey": random.choice(("react", "react", "asks")), "task": f"find a {random.choice(WORDS)}"}


def _call(index: int, name: str, given: dict[str, object], random: Random) -> list[llm_pb2.LlmDelta]:
    arguments = json.dumps(given)
    half = random.randrange(len(arguments))
    call_id = f"call_{random.randrange(10**9)}"
    first = llm_pb2.ToolCallDelta(index=index, id=call_id, name=name, arguments=arguments[:half])
    rest = llm_pb2.ToolCallDelta(index=index, arguments=arguments[half:])
    return [llm_pb2.LlmDelta(tool_call=first), llm_pb2.LlmDelta(tool_call=rest)]


def _finish(reason: str, request: llm_pb2.ChatRequest) -> list[llm_pb2.LlmDelta]:
    output_tokens = request.max_tokens // 2 if request.HasField("max_tokens") else OUTPUT_TOKENS
    usage = llm_pb2.LlmDelta(usage={"input_tokens": 10, "output_tokens": output_tokens, "model_calls": 1})  # pyright: ignore[reportArgumentType] - a dict is a message to protobuf
    return [usage, llm_pb2.LlmDelta(finish=llm_pb2.LlmFinish(reason=reason))]
