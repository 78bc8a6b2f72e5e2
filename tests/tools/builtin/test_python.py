"""The tool `python` over a real server, with real interpreters in this machine's sandbox."""

import asyncio
import functools
import json
from importlib.util import find_spec

import pytest

from headrace.streams import reading
from headrace.v1 import tools_pb2
from services.tools.sandbox.tiers import Sandbox
from tests.support.tiers import check_only
from tests.support.tools.commands import is_running
from tests.support.tools.suite import Serve, Suite
from tests.support.tools.tiers import TIERS


@pytest.fixture
def serve(serve: Serve) -> Serve:
    return functools.partial(serve, lasting=True)


FIGURES = """
import sys, types
class Figure:
    def savefig(self, path, **settings): open(path, 'wb').write(b'\\x89PNG\\r\\n\\x1a\\n')
pyplot = types.ModuleType('matplotlib.pyplot')
open_ones = [1, 2]
pyplot.get_fignums, pyplot.figure = lambda: open_ones, lambda number: Figure()
pyplot.close = lambda which: open_ones.clear()
sys.modules['matplotlib.pyplot'] = pyplot
"""
"""matplotlib as the interpreter uses it."""


async def python(suite: Suite, code: str, timeout_ms: int = 0) -> tools_pb2.ToolOutcome:
    return (await suite.execute("python", json.dumps({"code": code}), timeout_ms))[1]


@pytest.mark.parametrize("tier", TIERS)
async def test_variables_persist_between_calls(serve: Serve, tier: str) -> None:
    async with serve(Sandbox(tier)) as suite:  # pyright: ignore[reportArgumentType] - one of its literals
        assert (await python(suite, "import math\nx = 20\ndef twice(n): return 2 * n")).result == "(no output)"
        assert (await python(suite, "print('x is', x)\ntwice(x) + math.floor(2.5)")).result == "x is 20\n42\n"
        assert (await python(suite, "_ + 1")).result == "43\n"


@pytest.mark.parametrize(
    ("code", "ok", "expected"),
    [
        ("1 / 0", False, 'File "<python 1>", line 1, in <module>\n    1 / 0'),
        ("1 +", False, "SyntaxError"),
        ("raise SystemExit", True, ""),
        ("exit(3)", False, "exit code 3"),
        ("import sys; sys.exit('no input')", False, "no input"),
        ("print('10%', end='\\r'); print('\\x1b[32mall\\x1b[0m')", True, "all\n[lines that were written anew"),
        ("import os; os.write(1, b'\\xff\\x00')", True, "\ufffd\0"),
        ("import subprocess; subprocess.run(['echo', 'below'])", True, "below"),
        ("import os\nif os.fork() == 0: x = 1\nelse: os.wait()\nprint('once' * (os.getpid() > 0))", True, "once"),
        ("import sys; sys.stdout = None", True, ""),
        ("input()", False, "EOFError"),
        ("open('outputs/a.txt', 'w').write('x')", True, "1"),
        ("import threading; threading.Thread(target=print, args=('thread',)).start()", True, "thread"),
        ("print('x', end='')", True, "x"),
        ("print('\\ud800')", True, "\\ud800"),
        ("import pickle\nclass A: pass\nprint(type(pickle.loads(pickle.dumps(A()))) is A)", True, "True"),
        ("def f(x: int): ...\nprint(f.__annotations__['x'] is int)", True, "True"),
    ],
)
async def test_code_returns_its_output_or_error(serve: Serve, code: str, ok: bool, expected: str) -> None:
    async with serve() as suite:
        outcome = await python(suite, code)
        assert (outcome.ok, expected in outcome.result) == (ok, True), outcome.result
        assert "services/" not in outcome.result
        assert "/repl.py" not in outcome.result
        assert (await python(suite, "print('lives')")).ok


POOL = "from multiprocessing import Pool\ndef f(x): return x * x\nwith Pool(2) as pool: print(pool.map(f, [2, 3]))"


@pytest.mark.parametrize("tier", TIERS)
async def test_a_process_pool_works_or_the_model_is_advised_to_use_threads(serve: Serve, tier: str) -> None:
    async with serve(Sandbox(tier)) as suite:  # pyright: ignore[reportArgumentType] - one of its literals
        outcome = await python(suite, POOL)
    expected = "[4, 9]\n" if tier == "bubblewrap" else "use threads of concurrent.futures"
    assert (outcome.ok, expected in outcome.result) == (tier == "bubblewrap", True), outcome.result


async def test_output_streams_line_by_line(serve: Serve) -> None:
    code = "import os, time\nfor n in range(4):\n print(n)\n while not os.path.exists(f'seen{n}'): time.sleep(0.01)"
    lines: list[str] = []
    async with serve() as suite, reading(suite.call("python", json.dumps({"code": code}))) as deltas:
        async for delta in deltas:
            if delta.HasField("output"):
                (suite.workspace / f"seen{len(lines)}").touch()
                lines.append(delta.output.delta)
    assert lines == ["0\n", "1\n", "2\n", "3\n"]


async def test_code_over_its_timeout_is_interrupted_and_keeps_its_variables(serve: Serve) -> None:
    async with serve() as suite:
        outcome = await python(suite, "x = 1\nprint('up')\nwhile True: pass", timeout_ms=4000)
        assert not outcome.ok
        assert outcome.result.startswith("up\n")
        assert "KeyboardInterrupt" in outcome.result
        assert outcome.result.endswith("[interrupted after 4 s: its time was over; its variables are kept]")
        assert (await python(suite, "x")).result == "1\n"


async def test_code_that_ignores_the_interrupt_is_killed_and_the_next_call_reports_it(serve: Serve) -> None:
    stubborn = "x = 1\nimport time\nwhile True:\n try: time.sleep(9)\n except KeyboardInterrupt: pass"
    async with serve() as suite:
        outcome = await python(suite, stubborn, timeout_ms=3000)
        assert "had to be ended, and its variables are lost" in outcome.result
        again = await python(suite, "x")
        assert again.result.startswith("[a new interpreter")
        assert "NameError" in again.result
        assert "[a new" not in (await python(suite, "1")).result


async def test_a_dead_interpreter_is_reported(serve: Serve) -> None:
    async with serve() as suite:
        outcome = await python(suite, "import os; print('last', flush=True); os.kill(os.getpid(), 9)")
        assert outcome.result == "last\n[the interpreter has ended by itself (signal 9); its variables are lost]"
        assert "[a new interpreter" in (await python(suite, "1")).result


async def test_code_with_too_much_output_is_interrupted(serve: Serve) -> None:
    async with serve() as suite:
        outcome = await python(suite, "x = 1\nwhile True: print('y' * 1000)")
        assert not outcome.ok
        assert outcome.result.endswith("bytes of output; its variables are kept]")
        assert (await python(suite, "x")).result == "1\n"


async def test_cancelling_the_call_interrupts_the_code_but_keeps_the_interpreter(serve: Serve) -> None:
    async with serve() as suite:
        code = "x = 7\nprint('up')\nimport time; time.sleep(3600)"
        async with reading(suite.call("python", json.dumps({"code": code}))) as deltas:
            await anext(deltas)
        assert (await python(suite, "x")).result == "7\n"


async def test_calls_of_a_run_wait_for_each_other(serve: Serve) -> None:
    async with serve() as suite:
        await python(suite, "said = []")
        slow = "import time\nsaid.append(1); time.sleep(0.2); said.append(2)"
        await asyncio.gather(python(suite, slow), python(suite, slow))
        assert (await python(suite, "said")).result == "[1, 2, 1, 2]\n"


async def test_each_run_has_its_interpreter_and_the_longest_idle_is_replaced(serve: Serve) -> None:
    async with serve(interpreters_max=2) as suite:

        async def of_run(number: int, code: str) -> str:
            run_id = f"00000000-0000-4000-8000-00000000000{number}"
            request = tools_pb2.ExecuteRequest(
                run_id=run_id,
                tool_call_id="1",
                tool_name="python",
                chat_id="00000000-0000-4000-8000-000000000002",
                arguments=json.dumps({"code": code}),
            )
            async with reading(suite.stub.Execute(request)) as deltas:
                return [delta.result.result async for delta in deltas][-1]

        await of_run(1, "x = 1")
        assert "NameError" in await of_run(2, "x")
        assert await of_run(1, "x") == "1\n"
        assert await of_run(3, "3") == "3\n"  # as many as the suite allows are two: the second run's gives way
        assert await of_run(1, "x") == "1\n"
        assert (await of_run(2, "2")).startswith("[a new interpreter")


async def test_figures_are_saved_as_images_and_published(serve: Serve) -> None:
    async with serve() as suite:
        artifacts, result = list[str](), ""
        async with reading(
            suite.call("python", json.dumps({"code": f"{FIGURES}\nimport os; os.chdir('outputs')"}))
        ) as deltas:
            async for delta in deltas:
                if delta.HasField("artifact"):
                    artifacts.append(delta.artifact.name)
                result = delta.result.result
        assert result == "[figure saved: outputs/figure-1-1.png]\n[figure saved: outputs/figure-1-2.png]\n"
        assert artifacts == ["figure-1-1.png", "figure-1-2.png"]
        assert sorted(path.name for path in (suite.workspace / "outputs").glob("*.png")) == artifacts


async def test_data_frames_are_returned_as_text(serve: Serve) -> None:
    table = """
import sys, types
pandas = types.ModuleType('pandas')
class DataFrame:
    def to_string(self, max_rows, max_cols): return f'a table of {max_rows} rows at most'
pandas.DataFrame, pandas.Series = DataFrame, type('Series', (), {})
sys.modules['pandas'] = pandas
DataFrame()
"""
    async with serve() as suite:
        assert (await python(suite, table)).result == "a table of 60 rows at most\n"


async def test_the_service_packages_can_be_imported(serve: Serve) -> None:
    async with serve() as suite:
        assert (await python(suite, "import tzdata; tzdata.__name__")).result == "'tzdata'\n"


async def test_without_a_sandbox_no_interpreter_starts(serve: Serve) -> None:
    async with serve(Sandbox(None, "no Landlock")) as suite:
        outcome = await python(suite, "open('made', 'w')")
        assert not outcome.ok
        assert "no Landlock" in outcome.result
        assert not (suite.workspace / "made").exists()


async def test_interpreters_end_with_the_service(serve: Serve) -> None:
    async with serve() as suite:
        await python(suite, "import subprocess; subprocess.Popen(['sleep', '1040.5'], start_new_session=True)")
        while not is_running("1040.5"):
            await asyncio.sleep(0.01)
    assert not is_running("1040.5")


CHART = """
import matplotlib.pyplot as plt, pandas, scipy.stats
frame = pandas.DataFrame({"城市": ["巴黎", "Rome", "Oslo"], "mm": [53.0, 87, 60]})
frame.plot.bar(x="城市", y="mm", title="降雨 rain")
frame.to_excel("outputs/rain.xlsx"), frame.to_csv("outputs/rain.csv")
print(frame, scipy.stats.zscore(frame.mm).round(2), pandas.read_excel("outputs/rain.xlsx").mm.sum())
"""


@pytest.mark.skipif(find_spec("pandas") is None, reason="headrace[data] is not installed: data work is NOT tried")
@pytest.mark.parametrize("tier", check_only([(tier,) for tier in TIERS], kept={TIERS[:1]}))
async def test_the_data_extras_libraries_produce_tables_and_charts(serve: Serve, tier: str) -> None:
    async with serve(Sandbox(tier)) as suite:  # pyright: ignore[reportArgumentType] - one of its literals
        outcome = await python(suite, CHART, 200_000)
        assert outcome.ok, outcome.result
        assert " 200\n" in outcome.result
        assert "[figure saved: outputs/figure-1-1.png]" in outcome.result
        assert "Glyph" not in outcome.result, "a font of East Asia draws the labels"
        assert "findfont" not in outcome.result
        names = sorted(path.name for path in (suite.workspace / "outputs").iterdir())
    assert names == ["figure-1-1.png", "rain.csv", "rain.xlsx"]


@pytest.mark.parametrize("name", ["pandas", "scipy.stats", "openpyxl"])
async def test_a_missing_library_is_named_with_the_extra_that_installs_it(serve: Serve, name: str) -> None:
    code = f"import sys; sys.modules[{name.partition('.')[0]!r}] = None\nimport {name}"
    async with serve() as suite:
        outcome = await python(suite, code)
        other = await python(suite, "import nonsense_of_mine")
    assert not outcome.ok
    assert f"{name.partition('.')[0]} is not installed here; headrace[data] brings it" in outcome.result
    assert "headrace[data]" not in other.result
