"""Skills: read from a folder, linked into a workspace, used there by real commands in the real sandbox."""

import asyncio
import json
import os
import shutil
import zipfile
from pathlib import Path
from typing import Any

import pytest
import structlog
from prometheus_client import REGISTRY

from headrace.errors import NotFound, SkillUnavailable
from headrace.streams import rpc_errors
from headrace.v1 import tools_pb2
from services.tools.skills import environments
from tests.support.tools.suite import CHAT, Serve

EXAMPLES = Path(__file__).parents[3] / "examples" / "skills"
FRONT = "---\nname: A skill\ndescription: Does it.\n---\nDo it.\n"


def write_skill(folder: Path, skill_id: str = "one", front: str = FRONT, **files: str) -> Path:
    """Write a skill below `folder`, the server's configuration folder, and return its folder."""
    skill = folder / "skills" / skill_id
    skill.mkdir(parents=True)
    (skill / "SKILL.md").write_text(front, encoding="utf-8")
    for name, text in files.items():
        (skill / name.replace("__", ".")).write_text(text, encoding="utf-8")
    return skill


async def list_skills(suite: Any) -> dict[str, tools_pb2.Skill]:
    return {skill.id: skill for skill in (await suite.stub.ListSkills(tools_pb2.ListSkillsRequest())).skills}


async def link_skill(suite: Any, skill_id: str = "one") -> tools_pb2.LinkSkillResponse:
    with rpc_errors():
        return await suite.stub.LinkSkill(tools_pb2.LinkSkillRequest(skill_id=skill_id, chat_id=CHAT))


async def run_bash(suite: Any, command: str) -> tools_pb2.ToolOutcome:
    return (await suite.execute("_bash_", json.dumps({"command": command})))[1]


async def test_skills_are_listed_from_the_current_folder(serve: Serve, tmp_path: Path) -> None:
    front = "---\nname: PDF\ndescription: |\n  Reads.\n  Writes.\nfileTypes: [pdf, .PDF, Xps]\nlicense: MIT\n---\n"
    async with serve() as suite:
        assert await list_skills(suite) == {}
        write_skill(tmp_path, "pdf", front)
        (tmp_path / "skills" / ".git").mkdir()
        pdf = (await list_skills(suite))["pdf"]
        (tmp_path / "skills" / "pdf" / "SKILL.md").write_text(FRONT)
        changed = (await list_skills(suite))["pdf"]
        shutil.rmtree(tmp_path / "skills" / "pdf")
        assert await list_skills(suite) == {}
    assert (pdf.name, pdf.description, list(pdf.file_types)) == ("PDF", "Reads.\nWrites.", ["pdf", "xps"])
    assert (pdf.path, pdf.HasField("unavailable")) == ("skills/pdf/SKILL.md", False)
    assert changed.name == "A skill"


@pytest.mark.parametrize(
    ("skill_id", "front", "problem"),
    [
        ("one", "no front matter", "SKILL.md: must begin with its front matter"),
        ("one", "---\nname: a\n", "SKILL.md: must begin with its front matter"),
        ("one", "---\nname: a\n---\n", "SKILL.md: description: Field required"),
        ("one", "---\ndescription: a\n---\n", "SKILL.md: name: Field required"),
        ("one", "---\n- a\n---\n", "must have name and description"),
        ("one", "---\nname: [a\n---\n", "is not valid YAML: line 3, column 1"),
        ("one", "---\nname: a\ndescription: a\nfileTypes: ['a/b']\n---\n", "SKILL.md: fileTypes.0"),
        ("one", "---\nname: a\ndescription: " + "a" * 1025 + "\n---\n", "SKILL.md: description"),
        ("one", "---\na: " + "[" * 5000 + "\n---\n", "SKILL.md: the front matter"),
        ("one", "---\na: !!python/object/apply:os.system [ls]\n---\n", "is not valid YAML"),
        ("one", "---\nname: !!timestamp now\n---\n", "is not valid YAML: a value is not of its type"),
        ("one", "---\n" + "a" * 300_000, "larger than"),
        ("o n e", FRONT, "its folder's name"),
    ],
)
async def test_a_bad_skill_reports_its_problem_and_affects_no_other(
    serve: Serve, tmp_path: Path, skill_id: str, front: str, problem: str
) -> None:
    write_skill(tmp_path, skill_id, front)
    write_skill(tmp_path, "good")
    async with serve() as suite:
        skills = await list_skills(suite)
        with pytest.raises(SkillUnavailable) as caught:
            await link_skill(suite, skill_id)
        await link_skill(suite, "good")
    assert problem in skills[skill_id].unavailable
    assert problem in str(caught.value)
    assert not skills["good"].unavailable


async def test_a_skill_with_a_missing_or_damaged_file_reports_it(serve: Serve, tmp_path: Path) -> None:
    (tmp_path / "skills" / "empty").mkdir(parents=True)
    (write_skill(tmp_path, "latin") / "SKILL.md").write_bytes(b"---\nname: \xe9\n---\n")
    async with serve() as suite:
        skills = await list_skills(suite)
        with pytest.raises(NotFound):
            await link_skill(suite, "missing")
    assert skills["empty"].unavailable == "SKILL.md: No such file or directory"
    assert skills["latin"].unavailable == "SKILL.md: is not UTF-8"


@pytest.mark.parametrize("bad", [b"---\nname: [a\n---\n", b"", b"---\nname: \xe9\n---\n", b"-" * 300_000])
async def test_a_bad_skill_file_keeps_the_last_good_version_until_deleted(
    serve: Serve, tmp_path: Path, bad: bytes
) -> None:
    skill = write_skill(tmp_path, "one", front=FRONT, tell__py="print('old')")
    refused = {"kind": "skills"}
    async with serve() as suite:
        before = (await list_skills(suite))["one"]
        (skill / "SKILL.md").write_bytes(bad)
        (skill / "tell.py").write_text("print('new')")
        with structlog.testing.capture_logs() as logged:
            during = (await list_skills(suite))["one"]
            reply = await link_skill(suite)
        _, read = await suite.execute("read_file", json.dumps({"path": reply.path}))
        ran = await run_bash(suite, f"{reply.interpreter} skills/one/tell.py")
        assert REGISTRY.get_sample_value("headrace_refused_files", refused) == 1
        (skill / "SKILL.md").write_text(FRONT.replace("A skill", "Mended"))
        after = (await list_skills(suite))["one"]
        assert REGISTRY.get_sample_value("headrace_refused_files", refused) == 0
        (skill / "SKILL.md").unlink()
        removed = (await list_skills(suite))["one"]
    assert (before, read.result, ran.result) == (during, FRONT, "new\n")
    assert [(entry["file"], entry["last_good_kept"]) for entry in logged if entry["event"] == "skill refused"] == [
        ("one/SKILL.md", True)
    ]
    assert (after.name, removed.unavailable) == ("Mended", "SKILL.md: No such file or directory")


async def test_a_linked_skill_can_be_read_and_run_and_not_written(serve: Serve, tmp_path: Path) -> None:
    skill = write_skill(tmp_path, "one", tell__py="print('told', __file__)", __hidden="secret")
    (skill / "scripts").mkdir()
    (skill / "scripts" / "deep.sh").write_text("#!/bin/sh\necho deep\n")
    (skill / "scripts" / "deep.sh").chmod(0o755)
    async with serve() as suite:
        reply = await link_skill(suite)
        _, read = await suite.execute("read_file", json.dumps({"path": reply.path}))
        ran = await run_bash(suite, f"{reply.interpreter} skills/one/tell.py && skills/one/scripts/deep.sh")
        refused = await run_bash(suite, "echo x >> skills/one/SKILL.md")
        found = await run_bash(suite, "cd skills/one && find . -type f | sort")
    assert read.result == FRONT
    assert ran.result == "told skills/one/tell.py\ndeep\n" or ran.result.endswith("skills/one/tell.py\ndeep\n")
    assert (refused.ok, "Permission denied" in refused.result) == (False, True)
    assert found.result.split() == ["./SKILL.md", "./python", "./scripts/deep.sh", "./tell.py"]


async def test_changes_to_a_linked_copy_are_undone_and_stay_in_the_copy(serve: Serve, tmp_path: Path) -> None:
    skill = write_skill(tmp_path, "one", tell__py="print('told')")
    outside = tmp_path / "outside"
    (outside / "one").mkdir(parents=True)
    (outside / "one" / "kept").touch()
    attacks = [
        "chmod +w skills/one/tell.py && echo evil > skills/one/tell.py && touch skills/one/more",
        "rm -rf skills/one && ln -s /etc skills/one",
        f"rm -rf skills/one && ln -s {outside}/one skills/one",
        "rm -rf skills/one && mkfifo skills/one",
        "rm -rf skills/one && mkdir skills/one && mkfifo skills/one/SKILL.md skills/one/tell.py skills/one/python",
        "rm -rf skills/one && echo file > skills/one",
        "rm -rf skills",
    ]
    async with serve() as suite:
        for attack in attacks:
            await link_skill(suite)
            assert (await run_bash(suite, attack)).ok, attack
            await link_skill(suite)
            outcome = await run_bash(suite, "skills/one/python skills/one/tell.py && ls skills/one")
            assert outcome.result == "told\nSKILL.md\npython\ntell.py\n", attack
        await run_bash(suite, f"rm -rf skills && ln -s {outside} skills")
        with pytest.raises(SkillUnavailable):
            await link_skill(suite)
    assert (skill / "tell.py").read_text() == "print('told')"
    assert [path.name for path in outside.rglob("*")] == ["one", "kept"]


async def test_linking_again_copies_only_a_changed_skill(serve: Serve, tmp_path: Path) -> None:
    skill = write_skill(tmp_path)
    async with serve() as suite:
        copy = suite.workspace / "skills" / "one" / "SKILL.md"
        await link_skill(suite)
        first = copy.stat().st_ino
        await asyncio.gather(*(link_skill(suite) for _ in range(8)))
        assert copy.stat().st_ino == first
        (skill / "SKILL.md").write_text(FRONT + "More.\n")
        await link_skill(suite)
        assert copy.read_text() == FRONT + "More.\n"


@pytest.mark.parametrize("files", [{"python": "x"}, {"big": "x" * (21 * 1024 * 1024)}])
async def test_a_skill_that_cannot_be_copied_reports_why(serve: Serve, tmp_path: Path, files: dict[str, str]) -> None:
    write_skill(tmp_path, "one", **files)
    async with serve() as suite:
        with pytest.raises(SkillUnavailable, match=r"interpreter's place|at most"):
            await link_skill(suite)
    assert not (suite.workspace / "skills").exists()


def wheel(folder: Path, name: str) -> Path:
    """Make a small package that pip installs without an index."""
    path = folder / f"{name}-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as file:
        file.writestr(f"{name}.py", "VALUE = 'from the wheel'\n")
        info = f"{name}-1.0.dist-info"
        file.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        file.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: t\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        file.writestr(f"{info}/RECORD", "")
    return path


async def test_dependencies_are_installed_once_and_usable_in_the_sandbox(serve: Serve, tmp_path: Path) -> None:
    skill = write_skill(tmp_path, "one", tell__py="import headrace_probe; print(headrace_probe.VALUE)")
    (skill / "requirements.txt").write_text(f"# comment\n./{wheel(skill, 'headrace_probe').name}\n")
    async with serve() as suite:
        replies = await asyncio.gather(*(link_skill(suite) for _ in range(4)))
        outcome = await run_bash(suite, "skills/one/python skills/one/tell.py")
        without = await run_bash(suite, "python3 skills/one/tell.py")
        written = await run_bash(suite, f"touch {tmp_path}/skill_envs/x; touch {tmp_path}/skill_envs/*/x")
    assert (outcome.ok, outcome.result) == (True, "from the wheel\n")
    assert not without.ok
    assert not written.ok
    assert {reply.interpreter for reply in replies} == {"skills/one/python"}
    assert len([path for path in (tmp_path / "skill_envs").iterdir() if path.is_dir()]) == 1


@pytest.mark.parametrize(
    ("requirements", "problem"),
    [
        ("./missing-1.0-py3-none-any.whl\n", "missing"),
        ("not a requirement!\n", "requirement"),
        ("x" * 70_000, "larger"),
    ],
)
async def test_dependencies_that_cannot_be_installed_leave_nothing(
    serve: Serve, tmp_path: Path, requirements: str, problem: str
) -> None:
    write_skill(tmp_path, "one", requirements__txt=requirements)
    async with serve() as suite:
        for _ in range(2):
            with pytest.raises(SkillUnavailable, match=problem):
                await link_skill(suite)
    assert not (suite.workspace / "skills").exists()
    root = tmp_path / "skill_envs"
    assert not root.exists() or [path for path in root.iterdir() if path.is_dir()] == []


@pytest.mark.nightly
async def test_an_incomplete_environment_is_rebuilt(serve: Serve, tmp_path: Path) -> None:
    skill = write_skill(tmp_path, "one", tell__py="import headrace_probe; print(headrace_probe.VALUE)")
    (skill / "requirements.txt").write_text(f"./{wheel(skill, 'headrace_probe').name}\n")
    async with serve() as suite:
        await link_skill(suite)
        (environment,) = (path for path in (tmp_path / "skill_envs").iterdir() if path.is_dir())
        os.unlink(environment / environments.MARK)
        shutil.rmtree(environment / "bin")
        await link_skill(suite)
        outcome = await run_bash(suite, "skills/one/python skills/one/tell.py")
    assert outcome.result == "from the wheel\n"


async def test_the_chart_skill_draws_a_csv_file(serve: Serve, tmp_path: Path) -> None:
    shutil.copytree(EXAMPLES, tmp_path / "skills")
    table = 'month,amount,region\nJan,"1,200",N\nFeb,$900.5,N\nJan,100,S\nMar,,S\n'
    command = "skills/csv-chart/python skills/csv-chart/scripts/chart.py uploads/t.csv outputs/t.svg --labels month"
    async with serve() as suite:
        assert {skill.id: bool(skill.unavailable) for skill in (await list_skills(suite)).values()} == {
            "csv-chart": False,
            "letter": False,
        }
        await link_skill(suite, "csv-chart")
        await suite.execute("write_file", json.dumps({"path": "uploads/t.csv", "content": table}))
        chart = await run_bash(suite, f"{command} --numbers amount --title 'A < B'")
        lines = await run_bash(suite, f"{command} --numbers amount --kind line")
        refused = await run_bash(suite, f"{command} --numbers price")
        svg = (suite.workspace / "outputs" / "t.svg").read_text()
    assert chart.result == ("outputs/t.svg: 2 points, from 900.5 to 1300\n1 rows without a number were skipped\n"), (
        chart.result
    )
    assert lines.ok
    assert "<polyline" in svg
    assert (refused.ok, "the columns are: month, amount, region" in refused.result) == (False, True)


async def test_the_letter_skill_fills_its_template(serve: Serve, tmp_path: Path) -> None:
    shutil.copytree(EXAMPLES, tmp_path / "skills")
    fields = {name: name for name in ("sender", "recipient", "date", "subject", "salutation", "closing")}
    fields["body"] = "Prices < costs & more.\n\nEnd 你好."
    command = "skills/letter/python skills/letter/scripts/fill.py outputs/l.json outputs/l.docx"
    async with serve() as suite:
        await link_skill(suite, "letter")
        path = "outputs/l.json"
        await suite.execute("write_file", json.dumps({"path": path, "content": json.dumps(fields)}))
        filled = await run_bash(suite, command)
        with zipfile.ZipFile(suite.workspace / "outputs" / "l.docx") as file:
            names = set(file.namelist())
            document = file.read("word/document.xml").decode()
        del fields["date"]
        await suite.execute("write_file", json.dumps({"path": path, "content": json.dumps(fields | {"cc": "me"})}))
        refused = await run_bash(suite, command)
    assert filled.result == "outputs/l.docx: 7 fields filled\n"
    assert names == {"[Content_Types].xml", "_rels/.rels", "word/document.xml"}
    assert "Prices &lt; costs &amp; more." in document
    assert "End 你好." in document
    assert "{{" not in document
    assert "date: missing\ncc: not a field of the template" in refused.result
