"""Runs in the sandbox and executes pieces of code one after the other in one namespace.

Arguments are the number of the channel, then folders with packages. The channel carries lines of JSON {"mark", "code"}
in, and 1 or 0 out when a piece has ended; then both outputs get the mark.
"""

from __future__ import annotations

import ast
import contextlib
import importlib
import importlib.abc
import io
import json
import linecache
import os
import signal
import socket
import sys
import traceback
import warnings
from dataclasses import replace
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

NAME = "<python>"
"""File name in tracebacks; a number is appended, so that each piece of code shows its own lines."""

DATA_LIBRARIES = ("numpy", "pandas", "matplotlib", "openpyxl", "scipy")
"""Libraries named in the tool's description; they come with the extra headrace[data]."""

CHART_FONTS = ("Noto Sans SC", "Noto Sans CJK SC", "Noto Sans JP", "Noto Sans KR", "WenQuanYi Micro Hei")
CHART_FONT_FILES = "justmytype_intl_cjk/fonts/ofl/notosans*/*.ttf"

SYNCHRONIZE = f"{os.path.dirname(os.__file__)}/multiprocessing/synchronize.py"
NO_SEMAPHORES = (
    "multiprocessing has no semaphores in this sandbox: use threads of concurrent.futures, or start programs with "
    "subprocess."
)

TABLE_ROWS_MAX, TABLE_COLUMNS_MAX = 60, 30


def main() -> None:
    own = os.getpid()
    channel = socket.socket(fileno=int(sys.argv[1]))
    os.set_inheritable(channel.fileno(), False)
    sys.path = ["", *sys.path, *sys.argv[2:]]
    sys.argv = [""]
    sys.meta_path.insert(0, _ChartFonts())
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # matplotlib says this at every show(); the figures are saved when the code has ended.
    warnings.filterwarnings("ignore", "FigureCanvasAgg is non-interactive")
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors="backslashreplace", line_buffering=True)
    folder = os.getcwd()
    # pickle, multiprocessing and typing look up there what the code defines.
    module = sys.modules["__main__"] = ModuleType("__main__")
    vars(module)["__builtins__"] = __builtins__
    with channel, channel.makefile("r", encoding="utf-8") as requests:
        channel.sendall(b"r")  # ready: from now on an interrupt ends the code and not the interpreter
        for number, line in enumerate(requests, start=1):
            request = json.loads(line)
            ok = _run_code(request["code"], number, vars(module), folder)
            if os.getpid() != own:
                os._exit(0)  # the code has forked and this is the copy
            channel.sendall(b"1" if ok else b"0")
            for fd in (1, 2):
                os.write(fd, request["mark"].encode())


def _run_code(code: str, number: int, namespace: dict[str, Any], folder: str) -> bool:
    """Return whether the code ran to its end."""
    name = f"{NAME[:-1]} {number}>"
    linecache.cache[name] = (len(code), None, code.splitlines(keepends=True), name)
    ok = True
    try:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            _execute_code(code, name, namespace)
            _save_figures(number, folder)
        finally:
            signal.signal(signal.SIGINT, signal.SIG_IGN)
    except SystemExit as ending:
        ok = ending.code in (None, 0)
        if not ok:
            sys.stderr.write(f"exit code {ending.code}\n" if isinstance(ending.code, int) else f"{ending.code}\n")
    except BaseException as error:  # the code's own, KeyboardInterrupt from the service included
        ok = False
        frames = error.__traceback__
        while frames is not None and not frames.tb_frame.f_code.co_filename.startswith(NAME[:-1]):
            frames = frames.tb_next  # frames of this file
        with contextlib.suppress(Exception):
            traceback.print_exception(type(error), error, frames)
            where = [frame.f_code.co_filename for frame, _ in traceback.walk_tb(frames)]
            if isinstance(error, PermissionError) and where[-1:] == [SYNCHRONIZE]:
                print(NO_SEMAPHORES, file=sys.stderr)  # noqa: T201
            if isinstance(error, ModuleNotFoundError):
                library = (error.name or "").partition(".")[0]
                if library in DATA_LIBRARIES:
                    note = (
                        "is not installed here; headrace[data] brings it, where the tools service runs. Do without it."
                    )
                    print(f"{library} {note}", file=sys.stderr)  # noqa: T201
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # an interrupt may have prevented the first one
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):  # the code may have put anything in their place
            stream.flush()
    return ok


def _execute_code(code: str, name: str, namespace: dict[str, Any]) -> None:
    tree = ast.parse(code, name)
    last = tree.body[-1] if tree.body else None
    if isinstance(last, ast.Expr):
        tree.body.pop()
    # Without this file's own future statements, which would make texts of the code's annotations.
    exec(compile(tree, name, "exec", dont_inherit=True), namespace)  # the purpose of this program
    if isinstance(last, ast.Expr):
        expression: CodeType = compile(ast.Expression(last.value), name, "eval", dont_inherit=True)
        value = eval(expression, namespace)
        if value is not None:
            namespace["_"] = value
            print(_format_value(value))  # noqa: T201 - printing is how an interpreter answers


def _format_value(value: Any) -> str:
    pandas = sys.modules.get("pandas")
    if pandas is not None and isinstance(value, pandas.DataFrame):
        return value.to_string(max_rows=TABLE_ROWS_MAX, max_cols=TABLE_COLUMNS_MAX)
    if pandas is not None and isinstance(value, pandas.Series):
        return value.to_string(max_rows=TABLE_ROWS_MAX)
    return repr(value)


class _ChartFonts(importlib.abc.MetaPathFinder):
    """Finds no module; adds East Asian fonts after matplotlib's own when pyplot is imported."""

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> None:
        if fullname == "matplotlib.pyplot":
            sys.meta_path.remove(self)
            with contextlib.suppress(Exception):  # charts without these fonts are charts, too
                self._add_fonts()

    def _add_fonts(self) -> None:
        manager: Any = importlib.import_module("matplotlib.font_manager").fontManager
        for folder in sys.path:
            for file in Path(folder).glob(CHART_FONT_FILES) if folder else ():
                manager.addfont(str(file))
        # matplotlib draws a variable font in its first weight, and warns at each start that it is no other.
        manager.ttflist = [replace(font, weight=400) if font.name in CHART_FONTS else font for font in manager.ttflist]
        known = {font.name for font in manager.ttflist}
        settings: Any = importlib.import_module("matplotlib").rcParams
        settings["font.family"] = ["DejaVu Sans", *(name for name in CHART_FONTS if name in known)]


def _save_figures(number: int, folder: str) -> None:
    """Save open figures in the workspace, wherever the code has gone to."""
    pyplot = sys.modules.get("matplotlib.pyplot")
    if pyplot is None:
        return
    for figure in pyplot.get_fignums():
        path, copy = f"outputs/figure-{number}-{figure}.png", 1
        while os.path.lexists(f"{folder}/{path}"):
            copy += 1
            path = f"outputs/figure-{number}-{figure}-{copy}.png"
        pyplot.figure(figure).savefig(f"{folder}/{path}", bbox_inches="tight")
        print(f"[figure saved: {path}]")  # noqa: T201
    pyplot.close("all")


if __name__ == "__main__":
    main()
