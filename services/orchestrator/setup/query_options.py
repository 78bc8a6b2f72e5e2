"""Options of a query: preferences for its whole chat, names that its message mentions, and functions of its caller."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from dataclasses import replace
from typing import Literal

import msgspec

from headrace.errors import InvalidRequest
from headrace.v1 import agent_pb2, tools_pb2
from services.orchestrator.calls.own_tools.planning import PLAN_NAMES
from services.orchestrator.run.answers.call import CLIENT
from services.orchestrator.run.session_state import State
from services.runtime.formats.json_schema import find_schema_problem

PERSISTENT_TOOLS_MAX = 100

USERS_MAX = 100
"""Maximum users of a chat with stored preferences; a further user's replace the oldest."""

FIELD = "preferences"


ModelPref = Literal["", "vision", "code"]


class Preferences(msgspec.Struct, rename="camel", omit_defaults=True):
    persistent_tools: list[str] | None = None
    model_pref: ModelPref | None = None


def apply_preferences(state: State, query: agent_pb2.QueryRequest, user: str, is_owner: bool) -> tuple[State, bytes]:
    """Return the state with the preferences for a run of `user`, and the new FIELD, or b"" if the query changes none.

    Preferences stored before they were kept per user belong to the chat's owner.
    """
    if not (query.params or state.values):
        return state, b""
    by_user = state.read(FIELD, dict[str, Preferences], {})
    before = by_user.get(user)
    if before is None:
        before = Preferences()
        if is_owner:
            model = state.read("model_pref", str, "")
            before = Preferences(
                state.read("persistent_tools", list[str], []), model if model in ("vision", "code") else ""
            )
    wanted = _read(query)
    tools = (
        before.persistent_tools if wanted.persistent_tools is None else wanted.persistent_tools[:PERSISTENT_TOOLS_MAX]
    )
    held = Preferences(tools, before.model_pref if wanted.model_pref is None else wanted.model_pref)
    values = {
        "persistent_tools": msgspec.json.encode(tools or []),
        "model_pref": msgspec.json.encode(held.model_pref or ""),
    }
    changed = b""
    if wanted != Preferences():
        others = {name: theirs for name, theirs in by_user.items() if name != user}
        changed = msgspec.json.encode(dict([*others.items()][1 - USERS_MAX :]) | {user: held})
    return replace(state, values=state.values | values), changed


def _read(query: agent_pb2.QueryRequest) -> Preferences:
    try:
        return msgspec.json.decode(query.params or "{}", type=Preferences)
    except msgspec.DecodeError:
        return Preferences()  # params of another form are the caller's own


MENTIONS_MAX = 32
"""Maximum mentions; messages with more are pasted text."""

_NAME = re.compile(r"(?<![A-Za-z0-9._%+@-])@((?>[A-Za-z0-9_](?:[A-Za-z0-9_.-]{0,126}[A-Za-z0-9_])?))(?![@A-Za-z0-9_])")
_END = r"\s\"'#@<>|*?,;:!()\[\]{}，。；：、！？（）【】《》"
_FILE = re.compile(rf"(?<![A-Za-z0-9&/#])#(?:\"([^\"\n]{{1,255}})\"|([^{_END}]{{1,255}}))")

_ENDING = re.compile(r"[^.]\.[A-Za-z][A-Za-z0-9]{0,7}$")


def find_names(message: str) -> list[str]:
    """Return the names after `@` in the message, ignoring code and quoted lines (`> `)."""
    if "@" not in message:
        return []
    parts = message.split("```")[::2]  # every other one is a code block
    lines = (line for part in parts for line in part.split("\n") if not line.lstrip().startswith(">"))
    text = "\n".join(" ".join(line.split("`")[::2]) for line in lines)
    found = {match[1].casefold(): match[1] for match in _NAME.finditer(text)}
    return [*found.values()][:MENTIONS_MAX]


def find_files(message: str, paths: Collection[str]) -> list[str]:
    return [*dict.fromkeys(path for path in _match_files(message, paths).values() if path)][:MENTIONS_MAX]


def find_missing_files(message: str, paths: Collection[str]) -> list[str]:
    """Return names in the message that look like files, quoted or with an extension, but match none in `paths`."""
    missing = (name for name, path in _match_files(message, paths).items() if path is None)
    quoted = {match[1] for match in _FILE.finditer(message)}
    return [name for name in missing if name in quoted or _ENDING.search(name)][:MENTIONS_MAX]


def _match_files(message: str, paths: Collection[str]) -> dict[str, str | None]:
    if "#" not in message:
        return {}
    by_name = {path.rpartition("/")[2]: path for path in paths}
    by_name |= {path.removeprefix("uploads/"): path for path in paths}
    by_name |= {path: path for path in paths}
    found: dict[str, str | None] = {}
    for match in _FILE.finditer(message):
        wanted = match[1] or match[2]
        # A period after the name belongs to the sentence, unless there is such a file.
        name = wanted if wanted in by_name else wanted.rstrip(".")
        found[name] = by_name.get(name)
    return found


NO_ARGUMENTS = '{"type":"object","properties":{}}'


def make_client_tools(query: agent_pb2.QueryRequest, others: Iterable[tools_pb2.Tool]) -> list[tools_pb2.Tool]:
    """Create tools from the caller's functions; their names must differ from all `others`.

    Raises:
        InvalidRequest: A name is taken, or parameters are not a JSON Schema.
    """
    taken = {tool.name.casefold() for tool in others} | PLAN_NAMES
    tools: list[tools_pb2.Tool] = []
    for index, given in enumerate(query.client_tools):
        if given.name.casefold() in taken:
            raise InvalidRequest.of(f"clientTools[{index}].name", f"{given.name!r} is another tool's name already")
        if problem := find_schema_problem(given.parameters or NO_ARGUMENTS):
            raise InvalidRequest.of(f"clientTools[{index}].parameters", f"must be a JSON Schema: {problem}")
        taken.add(given.name.casefold())
        tools.append(
            tools_pb2.Tool(
                name=given.name,
                description=given.description,
                parameters=given.parameters or NO_ARGUMENTS,
                kind="frontend",
                tier=CLIENT,
                effect="once",
            )
        )
    return tools
