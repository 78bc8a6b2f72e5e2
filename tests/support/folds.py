"""A fold in the form of fold_cases.json."""

import json
from typing import Any

from headrace.runs.fold import Fold
from headrace.runs.parts import Block
from services.runtime.formats.json_form import encode, event


def describe_block(block: Block) -> dict[str, Any]:
    state: dict[str, Any] = {"kind": block.kind, "text": block.text, "name": block.name or None}
    state["isComplete"] = block.is_complete
    if block.kind == "content":
        state["isAnswer"] = block.is_answer
    if block.is_call and block.is_complete:
        state["params"] = json.loads(block.params) if block.params else None
    if block.result is not None:
        state["result"] = block.result
        if block.kind == "tool":
            state["ok"] = block.ok
    return state


def describe_fold(fold: Fold) -> dict[str, Any]:
    """The state in the form of fold_cases.json."""
    end = event(fold.end) if fold.end is not None else None
    tasks = {
        task.id: {"subagentId": task.subagent_id, "name": task.name, "description": task.description}
        | {"status": task.status, "summary": task.summary}
        | {"error": json.loads(encode(task.error)) if task.error is not None else None}
        for task in fold.tasks.values()
    }
    subagents = {
        subagent.id: {"parentId": subagent.parent_id, "taskId": subagent.task_id, "agentKey": subagent.agent_key}
        | {"depth": subagent.depth, "goal": subagent.goal, "ok": subagent.ok, "summary": subagent.summary}
        for subagent in fold.subagents.values()
    }
    return {
        "runId": fold.run_id,
        "chatId": fold.chat_id,
        "lastSeq": fold.last_seq,
        "blocks": {block.id: describe_block(block) for block in fold.blocks.values()},
        "plans": {plan_id: [json.loads(encode(task)) for task in plan] for plan_id, plan in fold.plans.items()},
        "tasks": tasks,
        "subagents": subagents,
        "answer": fold.answer,
        "end": {key: value for key, value in json.loads(end.json).items() if key != "timestamp"} if end else None,
    }
