"""Describes the commands of `headrace`, from click."""

from __future__ import annotations

import inspect
from collections.abc import Iterator

import click

from docs.generate import sources
from docs.generate.markdown import code, format_table
from headrace.cli.facade.options import CONNECTION


def walk_commands(command: click.Command | None = None, path: str = "headrace") -> Iterator[tuple[str, click.Command]]:
    """Yield every executable command with its full name."""
    command = command or sources.COMMAND_LINE
    if isinstance(command, click.Group) and command.invoke_without_command:
        yield path, command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.commands or command.list_commands(context):
            below = command.get_command(context, name)
            assert below is not None, "it is listed"
            yield from walk_commands(below, f"{path} {name}")
    else:
        yield path, command


def describe_commands(*names: str) -> str:
    """Return the description of these commands and groups, or of the connection options (`connection`)."""
    commands = dict(walk_commands())
    if names == ("connection",):
        return _format_options([option for option in sources.COMMAND_LINE.params if option.name in CONNECTION])
    paths = [f"headrace {name}" for name in names]
    found = [path for name in paths for path in commands if path == name or path.startswith(f"{name} ")]
    return "\n\n".join(_describe_command(path, commands) for path in found)


def _describe_command(path: str, commands: dict[str, click.Command]) -> str:
    command = commands[path]
    arguments = [param for param in command.params if isinstance(param, click.Argument)]
    words = " ".join(
        f"[{param.human_readable_name}]" if not param.required else param.human_readable_name for param in arguments
    )
    options = [param for param in command.params if isinstance(param, click.Option)]
    own = [option for option in options if option.name not in CONNECTION]
    parts = [
        f"### {code(path)}",
        f"```\n{path} [OPTIONS] {words}".rstrip() + "\n```",
        inspect.cleandoc(command.help or ""),
    ]
    if own:
        parts.append(_format_options(own))
    if len(options) > len(own):
        parts.append("Also the [connection options](#connection-options).")
    return "\n\n".join(parts)


def _format_options(options: list[click.Parameter] | list[click.Option]) -> str:
    rows: list[list[str]] = []
    for option in options:
        assert isinstance(option, click.Option)
        variables = [option.envvar] if isinstance(option.envvar, str) else list(option.envvar or ())
        meaning = option.help or ""
        if variables:
            meaning += f" In the environment: {', '.join(map(code, variables))}."
        rows.append(
            [
                ", ".join(map(code, [*option.opts, *option.secondary_opts])),
                _describe_type(option),
                _describe_default(option),
                meaning,
            ]
        )
    return format_table("option|type|default|meaning", rows)


def _describe_default(option: click.Option) -> str:
    if not option.show_default or option.default is None:
        return ""
    if option.secondary_opts:  # --on/--off
        return code((option.opts if option.default else option.secondary_opts)[0])
    return "" if option.is_flag else code(str(option.default))


def _describe_type(option: click.Option) -> str:
    if option.is_flag:
        return "flag"
    if isinstance(option.type, click.IntRange) and option.type.max is None:
        return f"integer, {option.type.min} or more"
    if isinstance(option.type, click.IntRange):
        return f"integer, {option.type.min} to {option.type.max}"
    return "number" if isinstance(option.type, click.FloatRange) else option.type.name
