"""Tools that run code from the model: a command line, or Python in the run's interpreter, which keeps its variables."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing

from headrace.v1 import tools_pb2
from services.tools.errors import ToolFailed
from services.tools.interpreter.session import CodeEnded, InterpreterSession, start_session
from services.tools.sandbox.command import OUTPUT_BYTES_MAX, CommandOutput
from services.tools.toolkit.commands import (
    TIMEOUT_S,
    TIMEOUT_S_MAX,
    Command,
    add_note,
    format_output,
    make_policy,
    run_command,
)
from services.tools.toolkit.tool import Tool, ToolContext, describe_parameters, make_output, make_result

COMMAND_CHARS_MAX = 100_000
"""Linux accepts 131,072 bytes for one argument."""

CODE_CHARS_MAX = 100_000

FORGOTTEN = "[a new interpreter: the one that had the variables of earlier calls has ended]\n"


def _bash(context: ToolContext) -> AsyncGenerator[tools_pb2.ToolDelta]:
    timeout_s = context.arguments.get("timeoutMs", TIMEOUT_S * 1000) / 1000
    return run_command(context, Command(("bash", "-c", context.arguments["command"]), timeout_s=timeout_s))


BASH = Tool(
    name="_bash_",
    description=(
        "Run a bash command line in the chat's workspace and get what it prints. There is no network unless "
        "https_proxy is set. Files of the system can be read, and nothing outside the workspace written: instead of "
        "/tmp use $HOME, which is emptied afterwards (export TMPDIR=$HOME for programs that insist). Files for the "
        "user belong into outputs/. Nothing keeps running when the command ends."
    ),
    parameters=describe_parameters(
        {
            "command": {
                "type": "string",
                "minLength": 1,
                "maxLength": COMMAND_CHARS_MAX,
                "description": "Bash command line",
            },
            "timeoutMs": {
                "type": "integer",
                "minimum": 1,
                "maximum": int(TIMEOUT_S_MAX * 1000),
                "description": f"Greatest run time in milliseconds; without it {int(TIMEOUT_S * 1000)}",
            },
        },
        "command",
    ),
    effect="once",
    execute=_bash,
    tier="discovered",
    begins_itself=True,
    needs=frozenset({"sandbox"}),
)


async def _python(context: ToolContext) -> AsyncGenerator[tools_pb2.ToolDelta]:
    key = (context.chat_id, context.request.run_id)
    async with context.interpreters.borrow_session(key, lambda: _start_interpreter(context)) as borrowed:
        note = FORGOTTEN if borrowed.has_forgotten else ""
        if note:
            yield make_output("stderr", note)
        await context.begin()
        timeout_s = min(context.timeout_s or TIMEOUT_S, TIMEOUT_S_MAX)
        pieces, ended = [note], CodeEnded("died")
        async with aclosing(borrowed.session.execute(context.arguments["code"], timeout_s)) as events:
            async for event in events:
                match event:
                    case CommandOutput(stream=stream, text=text):
                        pieces.append(text)
                        yield make_output(stream, text)
                    case CodeEnded():
                        ended = event
        note = _format_note(ended, timeout_s, borrowed.session.is_alive)
        yield make_result(add_note(format_output("".join(pieces)), note), ok=ended.ok)


async def _start_interpreter(context: ToolContext) -> InterpreterSession:
    try:
        return await start_session(await make_policy(context, Command(()), TIMEOUT_S_MAX), context.sandbox.allow_list)
    except OSError as error:
        raise ToolFailed(f"the interpreter could not be started: {error}") from error


def _format_note(ended: CodeEnded, timeout_s: float, is_alive: bool) -> str:
    kept = "its variables are kept" if is_alive else "the interpreter had to be ended, and its variables are lost"
    match ended.reason:
        case "late":
            return f"[interrupted after {timeout_s:g} s: its time was over; {kept}]"
        case "flood":
            return f"[interrupted: more than {OUTPUT_BYTES_MAX} bytes of output; {kept}]"
        case "died":
            return f"[the interpreter has ended by itself ({ended.problem}); its variables are lost]"
        case "ended":
            return ""


PYTHON = Tool(
    name="python",
    description=(
        "Run Python code in the chat's workspace and get what it prints, and the value of a last expression. "
        "Variables, imports and functions stay for the next call of this run. There is no network unless https_proxy "
        "is set. numpy, pandas, matplotlib, scipy and openpyxl can be imported if they are installed. Open figures are "
        "saved as pictures; files for the user belong into outputs/."
    ),
    parameters=describe_parameters(
        {"code": {"type": "string", "minLength": 1, "maxLength": CODE_CHARS_MAX, "description": "Python code"}}, "code"
    ),
    effect="once",
    execute=_python,
    tier="enabled",
    begins_itself=True,
    needs=frozenset({"sandbox"}),
)
