"""Describes the contract in the protos: events, messages, routes and RPCs with their comments."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from google.protobuf.descriptor import Descriptor, FieldDescriptor, MethodDescriptor

from docs.generate import sources
from docs.generate.markdown import code, format_table, slug
from docs.generate.sources import Route

EVENT = sources.agent_pb2.AgentDelta.DESCRIPTOR
EVENTS = {field.name.replace("_", ".", 1): field for field in EVENT.oneofs_by_name["payload"].fields}
"""Payload fields of AgentDelta by their JSON type."""

EVENTS_PAGE = ("Usage", "Failure", "Task", "Upload", "Reference", "Scene")
"""Messages described on events.md; http.md describes the others."""

_BODIES = {route.rpc.input_type.name: slug(f"{route.verb} {route.path}") for route in sources.load_routes()}
"""Section of http.md that describes the fields of a route's request, by message name."""

_KINDS = {
    FieldDescriptor.CPPTYPE_STRING: "text",
    FieldDescriptor.CPPTYPE_BOOL: "true or false",
    FieldDescriptor.CPPTYPE_DOUBLE: "number",
    FieldDescriptor.CPPTYPE_FLOAT: "number",
}

_LABEL = re.compile(r"^(Effect|Order|Idempotency|Idempotent|Errors[\w ]*):(?= )")
"""Start of a comment line that becomes a list item."""


def describe_events(*kinds: str) -> str:
    """Return the descriptions of the events with types that start with one of these words."""
    parts: list[str] = []
    for kind in kinds:
        for name, field in EVENTS.items():
            if name.partition(".")[0] == kind:
                parts += [f"### {code(name)}", _describe_event(field)]
    return "\n\n".join(parts)


def describe_other_events() -> str:
    """Return the descriptions of the events that no other region of their page names."""
    page = Path(__file__).parents[1] / "reference" / "events.md"
    named = " ".join(re.findall(r"<!-- generated: events (.*) -->", page.read_text())).split()
    return describe_events(*dict.fromkeys(kind for name in EVENTS if (kind := name.partition(".")[0]) not in named))


def _describe_event(field: FieldDescriptor) -> str:
    message = field.message_type
    assert message is not None, "every payload is a message"
    text, more = sources.find_comment(field.full_name), sources.find_comment(message.full_name)
    if more.lower().startswith(text.rstrip(".").lower()):
        text = more
    elif more.rstrip(".").lower() not in text.lower():
        text += f" {more}"
    return f"{_format_comment(text)}\n\n{_describe_fields(message, page='events')}"


def describe_messages(*names: str) -> str:
    """Return the fields of messages, each under a heading."""
    found = {
        message.name: message for file in sources.FILES for message in _reachable(file.message_types_by_name.values())
    }
    return "\n\n".join(_describe_message(found[name], page="events") for name in names)


def describe_http_messages() -> str:
    """Return the messages nested in requests and answers of routes, except those of events."""
    tops = [message for route in sources.load_routes() for message in (route.rpc.input_type, route.rpc.output_type)]
    skipped = {*tops, EVENT, *(field.message_type for field in EVENTS.values())}
    found = [message for message in _reachable(top for top in tops if top is not EVENT) if message not in skipped]
    wanted = sorted((message for message in found if message.name not in EVENTS_PAGE), key=lambda each: each.name)
    return "\n\n".join(_describe_message(message, page="http") for message in wanted)


def describe_routes(peer: str) -> str:
    """Return the routes answered by a service, each with parameters and reply."""
    return "\n\n".join(_describe_route(route) for route in sources.load_routes() if route.peer == peer)


def list_services() -> str:
    """Return the table of gRPC services: which service answers, and how many RPCs clients may call."""
    rows: list[list[str]] = []
    for name, service in sources.SERVICES.items():
        rpcs = [rpc for rpc in sources.RPCS.values() if rpc.descriptor.containing_service is service]
        public = sum(sources.CLIENT in rpc.callers for rpc in rpcs)
        for_clients = "all" if public == len(rpcs) else f"{public} of {len(rpcs)}" if public else "none"
        rows.append([f"[{name}](#{slug(name)})", rpcs[0].server, for_clients])
    return format_table("service | answered by | RPCs for clients", rows)


def describe_rpcs() -> str:
    """Return the descriptions of all RPCs."""
    paths = {route.rpc.full_name: f"{route.verb} {route.path}" for route in sources.load_routes()}
    parts: list[str] = []
    for service in sources.SERVICES.values():
        parts += [f"## {service.name}", _format_comment(sources.find_comment(service.full_name))]
        for rpc in service.methods:
            over_http = f" · [{code(path)}](http.md#{slug(path)})" if (path := paths.get(rpc.full_name)) else ""
            parts += [
                f"### {service.name}.{rpc.name}",
                f"{code(_signature(rpc))}{over_http}",
                _format_comment(sources.find_comment(rpc.full_name)),
            ]
    return "\n\n".join(parts)


def list_scopes() -> str:
    """Return the table of RPCs that need a scope or write to the audit log, with their routes."""
    paths = {route.grpc_path: f"{route.verb} {route.path}" for route in sources.load_routes()}
    rows: list[list[str]] = []
    for rpc in sorted(sources.RPCS.values(), key=lambda rpc: (rpc.scope, rpc.path)):
        if not rpc.scope and (not rpc.audit or sources.CLIENT not in rpc.callers):
            continue
        path = paths.get(rpc.path)
        over_http = f"[{code(path)}](http.md#{slug(path)})" if path else ""
        link = f"[{rpc.name}](#{slug(rpc.name)})"
        rows.append([code(rpc.scope) if rpc.scope else "", link, over_http, code(rpc.audit) if rpc.audit else ""])
    return format_table("scope | RPC | over HTTP | in the audit log", rows)


def list_callers() -> str:
    """Return the table of allowed callers of methods, by service."""
    methods: dict[tuple[str, str], list[str]] = {}
    for path, callers in sources.CALLERS.items():
        service, _, name = path.rpartition("/")
        key = service.rpartition(".")[2], ", ".join(sorted(callers))
        methods.setdefault(key, []).append(name)
    rows = [
        [code(service), callers, " ".join(map(code, names))] for (service, callers), names in sorted(methods.items())
    ]
    return format_table("service | who may call | methods", rows)


def _signature(rpc: MethodDescriptor) -> str:
    takes = "stream " * rpc.client_streaming + rpc.input_type.name
    return f"{rpc.name}({takes}) returns ({'stream ' * rpc.server_streaming}{rpc.output_type.name})"


def _describe_route(route: Route) -> str:
    rpc = route.rpc
    parts = [f"### {code(f'{route.verb} {route.path}')}", f"{code(rpc.full_name.removeprefix('headrace.v1.'))}"]
    parts.append(_format_comment(sources.find_comment(rpc.full_name)))
    if route.is_upload:
        parts.append("Body: a form, `multipart/form-data`, with the file in the field `file`; see [Uploads](#uploads).")
        start = sources.tools_pb2.UploadStart.DESCRIPTOR
        parts.append(_describe_fields(start, page="http"))
    elif route.is_hook:
        parts += [
            "Body: the payload, as it is; the other fields are in the path and the headers.",
            _describe_fields(rpc.input_type, page="http"),
        ]
    elif route.is_file:
        fields = [field for field in rpc.input_type.fields if field.name not in ("offset", "length")]
        parts += ["Query parameters:", _format_fields(fields, page="http")]
    elif rpc.input_type.fields:
        parts.append("Body, a JSON object:" if route.has_body else "Query parameters:")
        parts.append(_describe_fields(rpc.input_type, page="http"))
    parts.append(_describe_reply(route))
    return "\n\n".join(parts)


def _describe_reply(route: Route) -> str:
    message = route.rpc.output_type
    if route.is_stream_of_events:
        return "Reply: a stream of [events](events.md)."
    if route.is_watch:
        fields = _describe_fields(message, page="http")
        return (
            f"Reply: Server-Sent Events, each with one JSON object in `data`. It has one of these fields.\n\n{fields}"
        )
    if route.is_file:
        return "Reply: the file's bytes; see [Files](#files)."
    if route.response_body:
        field = message.fields_by_name[route.response_body]
        beside = [other for other in message.fields if other is not field]
        kind = _describe_type(field, "http")
        text = f"Reply: `data` is {f'a {kind}' if field.is_repeated else kind}."
        return f"{text} Along with `data`:\n\n{_format_fields(beside, page='http')}" if beside else text
    if not message.fields:
        return "Reply: `data` is an empty object."
    return f"Reply: `data` has these fields.\n\n{_describe_fields(message, page='http')}"


def _describe_message(message: Descriptor, page: str) -> str:
    comment = _format_comment(sources.find_comment(message.full_name))
    return f"### {message.name}\n\n{comment}\n\n{_describe_fields(message, page)}"


def _describe_fields(message: Descriptor, page: str) -> str:
    return _format_fields(message.fields, page) if message.fields else "No fields."


def _format_fields(fields: Iterable[FieldDescriptor], page: str) -> str:
    rows = ([code(field.json_name), _describe_type(field, page), _describe_meaning(field)] for field in fields)
    return format_table("field|type|meaning", rows)


def _describe_type(field: FieldDescriptor, page: str) -> str:
    message = field.message_type
    if message is EVENT:
        kind = "[event](events.md)"
    elif message is not None:  # its comment says whether it may be absent
        event = next((name for name, each in EVENTS.items() if each.message_type is message), None)
        home = "events" if event or message.name in EVENTS_PAGE else "http"
        anchor = _BODIES.get(message.name) or slug(event or message.name)
        kind = f"[{message.name}]({'' if home == page else f'{home}.md'}#{anchor})"
    elif sources.rules_of(field).json:
        kind = "JSON"
    else:
        kind = _KINDS.get(field.cpp_type, "integer")
    if field.is_repeated:
        return f"list of {kind}"
    return f"{kind}, optional" if field.has_presence and message is None else kind


def _describe_meaning(field: FieldDescriptor) -> str:
    rules = sources.rules_of(field)
    limits = ["Required."] if rules.required else []
    if rules.uuid:
        limits.append("A UUID.")
    if rules.bytes_max:
        limits.append(f"At most {rules.bytes_max:,} bytes.")
    if rules.items_max:
        limits.append(f"At most {rules.items_max} items.")
    if rules.alias:
        limits.append(f"`{rules.alias}` is accepted in its place.")
    return " ".join([sources.find_comment(field.full_name), *limits])


def _format_comment(comment: str) -> str:
    """Return a comment as paragraphs, with labelled lines as a list."""
    paragraphs: list[str] = []
    for paragraph in comment.split("\n\n"):
        lines: list[str] = []
        for line in paragraph.splitlines():
            if _LABEL.match(line):
                lines.append(_LABEL.sub(r"- **\1:**", line))
            elif lines:
                lines[-1] += f" {line}"
            else:
                lines.append(line)
        first, *rest = lines or [""]
        paragraphs.append("\n".join([first, *([""] if rest and not first.startswith("- ") else []), *rest]))
    return "\n\n".join(paragraphs)


def _reachable(messages: Iterable[Descriptor]) -> Iterator[Descriptor]:
    """Yield the messages and all messages in their fields, each once."""
    waiting, seen = list(messages), set[str]()
    while waiting:
        message = waiting.pop(0)
        if message.full_name not in seen:
            seen.add(message.full_name)
            yield message
            waiting += [field.message_type for field in message.fields if field.message_type is not None]
