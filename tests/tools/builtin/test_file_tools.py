"""read_file, write_file, edit_file, list_files and grep as a model calls them."""

import asyncio
import json
import os
import random
import resource
import time
from pathlib import Path
from typing import Any

import pytest

from services.tools.builtin import grep
from services.tools.errors import ToolFailed
from services.tools.toolkit.tool import RESULT_CHARS_MAX
from services.tools.workspace.tree_walk import DEPTH_MAX, compile_glob
from tests.support.tools.suite import Serve, Suite


async def call_tool(suite: Suite, tool: str, **arguments: Any) -> str:
    """Execute a tool that must succeed, and return its result."""
    _, outcome = await suite.execute(tool, json.dumps(arguments))
    assert outcome.ok, outcome.result
    return outcome.result


async def call_refused(suite: Suite, tool: str, **arguments: Any) -> str:
    """Execute a tool that must fail, and return its result."""
    _, outcome = await suite.execute(tool, json.dumps(arguments))
    assert not outcome.ok, outcome.result
    return outcome.result


def create_file(suite: Suite, path: str, content: str | bytes = "") -> Path:
    file = suite.workspace / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    return file


async def test_an_edit_replaces_one_passage_and_nothing_else(serve: Serve) -> None:
    async with serve() as suite:
        file = create_file(suite, "a.md", "one\ntwo 水\nthree\n")
        result = await call_tool(suite, "edit_file", path="a.md", oldText="two 水\nth", newText="2\r\nTh")
        assert file.read_bytes() == b"one\n2\r\nThree\n"
        await call_tool(suite, "edit_file", path="a.md", oldText="one\n", newText="")
        assert file.read_bytes() == b"2\r\nThree\n"
    assert result == "replaced 1 occurrence in a.md"


async def test_an_ambiguous_edit_lists_the_places_and_changes_nothing(serve: Serve) -> None:
    async with serve() as suite:
        file = create_file(suite, "a", "x = 1\n" * 3 + "y\n" + "x = 1\n" * 20)
        result = await call_refused(suite, "edit_file", path="a", oldText="x = 1", newText="x = 2")
        assert file.read_text().count("x = 1") == 23
        edited = await call_tool(suite, "edit_file", path="a", oldText="x = 1", newText="x = 2", replaceAll=True)
        assert file.read_text().count("x = 2") == 23
    assert "occurs 23 times in 'a' (lines 1, 2, 3, 5, 6, 7, 8, 9, 10, 11, …)" in result
    assert edited == "replaced 23 occurrences in a"


@pytest.mark.parametrize(
    ("content", "old", "problem"),
    [
        ("a new one", "one two", "has newText already (lines 1); nothing was changed"),
        ("if x:\n\treturn", "if x:\n    return", "without its spaces and line ends"),
        ("other", "one", "occurs 0 times in 'a': read the file"),
        (b"one\0", "one", "not a text file"),
        ("one", "two", "occurs 0 times"),
    ],
)
async def test_an_edit_without_a_match_reports_why(serve: Serve, content: str | bytes, old: str, problem: str) -> None:
    async with serve() as suite:
        file = create_file(suite, "a", content)
        before = file.read_bytes()
        assert problem in await call_refused(suite, "edit_file", path="a", oldText=old, newText="new")
        assert file.read_bytes() == before


@pytest.mark.parametrize(
    ("content", "old", "new", "every"),
    [
        ("a\nb\n", "a\n", "a\ninserted\n", False),
        ("a b a b", "a", "aa", True),
        ("one two", "one", "two", False),
        ("x", "x", "xx", False),
    ],
)
async def test_a_repeated_edit_changes_nothing_more(
    serve: Serve, content: str, old: str, new: str, every: bool
) -> None:
    arguments = {"path": "a", "oldText": old, "newText": new, "replaceAll": every}
    async with serve() as suite:
        file = create_file(suite, "a", content)
        await call_tool(suite, "edit_file", **arguments)
        once = file.read_text()
        assert "has newText already" in await call_refused(suite, "edit_file", **arguments)
        assert file.read_text() == once == content.replace(old, new)


NAMES = {
    "uploads/Screenshot at 3.04\u202fPM.txt": "uploads/Screenshot at 3.04 PM.txt",
    "Cafe\u0301/Bob\u2019s na\u0308me.txt": "Café/Bob's näme.txt",
    "Sn\u00edmek v\u00a013.05.txt": "Sn\u00edmek v 13.05.txt",
    "M\udcfcller.txt": "M?ller.txt",
}
"""What a system calls a file, and what a model does that has read it in a list."""


@pytest.mark.parametrize("name", NAMES)
async def test_a_file_is_found_by_the_name_as_a_model_writes_it(serve: Serve, name: str) -> None:
    async with serve() as suite:
        file = create_file(suite, name, "some text")
        assert await call_tool(suite, "read_file", path=NAMES[name]) == "some text"
        assert NAMES[name].rpartition("/")[2][:3] in await call_tool(suite, "list_files", glob=NAMES[name])
        assert "some text" in await call_tool(suite, "grep", pattern="some", path=NAMES[name])
        await call_tool(suite, "edit_file", path=NAMES[name], oldText="some", newText="other")
        assert file.read_text() == "other text"
        assert [path for path in suite.workspace.rglob("*") if path.is_file()] == [file]


async def test_the_exact_name_wins_and_ambiguous_names_are_not_guessed(serve: Serve) -> None:
    async with serve() as suite:
        create_file(suite, "a b", "plain")
        create_file(suite, "a\u00a0b", "no break")
        assert await call_tool(suite, "read_file", path="a b") == "plain"
        assert await call_tool(suite, "read_file", path="a\u00a0b") == "no break"
        assert "No such file" in await call_refused(suite, "read_file", path="a\u202fb")
        await call_tool(suite, "write_file", path="a\u2009b", content="new")
        assert len([path for path in suite.workspace.iterdir() if path.is_file()]) == 3


async def test_a_path_as_commands_print_it_is_one_in_the_workspace(serve: Serve) -> None:
    async with serve() as suite:
        create_file(suite, "uploads/a.txt", "some text")
        _, outcome = await suite.execute("_bash_", json.dumps({"command": "ls $PWD/uploads/a.txt"}))
        path = outcome.result.strip()
        assert await call_tool(suite, "read_file", path=path) == "some text"
        assert "some text" in await call_tool(suite, "grep", pattern="some", path=path)
        await call_tool(suite, "edit_file", path=path, oldText="some", newText="other")
        await call_tool(suite, "write_file", path=path.replace("uploads", "outputs/new"), content="written")
        folder = path.removesuffix("/uploads/a.txt")
        listed = await call_tool(suite, "list_files", path=folder)
        assert "leads out of" in await call_refused(suite, "read_file", path=f"{folder}/../{folder}-2/a")
    assert listed.splitlines() == ["outputs/new/a.txt (7 bytes)", "uploads/a.txt (10 bytes)"]


async def test_a_letter_with_very_many_combining_marks_is_not_normalized(serve: Serve) -> None:
    # Normalizing would sort the marks for minutes and block the whole service.
    arguments = {"path": "a", "oldText": "a" + "\u0301\u0316" * 240_000, "newText": "b"}
    async with asyncio.timeout(30), serve() as suite:
        create_file(suite, "a", "text")
        _, outcome = await suite.execute("edit_file", json.dumps(arguments, ensure_ascii=False))
    assert "occurs 0 times" in outcome.result


async def test_a_passage_is_found_whether_composed_or_decomposed(serve: Serve) -> None:
    async with serve() as suite:
        file = create_file(suite, "a", "na\u0308ive cafe\u0301\r\nend\r\n")
        await call_tool(suite, "edit_file", path="a", oldText="näive café\nend", newText="größe\nend")
        assert file.read_bytes() == "gro\u0308ße\r\nend\r\n".encode()


async def test_concurrent_edits_of_one_file_are_all_applied(serve: Serve) -> None:
    async with serve() as suite:
        file = create_file(suite, "a", "".join(f"line {n:02}\n" for n in range(30)))
        edits = (
            call_tool(suite, "edit_file", path="a", oldText=f"line {n:02}", newText=f"done {n:02}") for n in range(30)
        )
        await asyncio.gather(*edits)
        assert file.read_text() == "".join(f"done {n:02}\n" for n in range(30))


async def test_writing_and_editing_replace_the_name_not_what_it_is_linked_to(serve: Serve, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.write_text("outside")
    async with serve() as suite:
        create_file(suite, "x")
        for name in ("written", "edited"):
            os.link(outside, suite.workspace / name)
        await call_tool(suite, "write_file", path="written", content="new")
        await call_tool(suite, "edit_file", path="edited", oldText="outside", newText="new")
        assert [(suite.workspace / name).read_text() for name in ("written", "edited")] == ["new", "new"]
    assert outside.read_text() == "outside"


async def test_a_command_cannot_create_a_hard_link_to_an_outside_file(serve: Serve, tmp_path: Path) -> None:
    (tmp_path / "outside").write_text("secret")
    async with serve() as suite:
        result = await call_refused(suite, "_bash_", command=f"ln {tmp_path}/outside stolen && cat stolen")
    assert "secret" not in result


ESCAPES = [
    "../../secret", "uploads/../../../secret", "/etc/passwd", "/proc/self/root/etc/passwd", "proc/etc/passwd",
    "link", "folder/secret", "....//secret", "%2e%2e/%2e%2e/secret", "pipe", "uploads", "x" * 300, "a/" * 2100, "a\0b",
    "loop", "device", "~/secret", "file:///etc/passwd", "\\..\\secret",
]  # fmt: skip


@pytest.mark.parametrize("path", ESCAPES)
async def test_no_file_tool_leaves_the_workspace_or_hangs(serve: Serve, tmp_path: Path, path: str) -> None:
    (tmp_path / "secret").write_text("top-secret")
    async with serve() as suite:
        create_file(suite, "uploads/own")
        (suite.workspace / "link").symlink_to(tmp_path / "secret")
        (suite.workspace / "folder").symlink_to(tmp_path)
        (suite.workspace / "proc").symlink_to("/proc/self/root")
        (suite.workspace / "loop").symlink_to("loop")
        (suite.workspace / "device").symlink_to("/dev/zero")
        os.mkfifo(suite.workspace / "pipe")
        result = await call_refused(suite, "read_file", path=path)
        result += await call_refused(suite, "edit_file", path=path, oldText="top", newText="x")
        _, searched = await suite.execute("grep", json.dumps({"pattern": "top|root:", "path": path}))
        _, listed = await suite.execute("list_files", json.dumps({"path": path}))
    assert "top-secret" not in result + searched.result
    assert "secret (10 bytes)" not in listed.result
    assert (tmp_path / "secret").read_text() == "top-secret"


async def test_a_list_follows_glob_and_depth(serve: Serve) -> None:
    async with serve() as suite:
        for path in ("a.md", "b.txt", "docs/c.md", "docs/deep/d.md", "docs/deep/e.txt"):
            create_file(suite, path)
        files = {
            json.dumps(arguments): [
                line.split()[0] for line in (await call_tool(suite, "list_files", **arguments)).splitlines()
            ]
            for arguments in (
                {"glob": "*.md"},
                {"path": "docs", "glob": "deep/*.md"},
                {"depth": 1},
                {"path": "docs", "depth": 1},
                {"glob": "*.{txt,csv}", "depth": 2},
            )
        }
        nothing = await call_tool(suite, "list_files", glob="*.py")
        assert "cannot be read" in await call_refused(suite, "list_files", glob="{a")
    assert list(files.values()) == [
        ["a.md", "docs/c.md", "docs/deep/d.md"],
        ["docs/deep/d.md"],
        ["a.md", "b.txt"],
        ["docs/c.md"],
        ["b.txt"],
    ]
    assert nothing == "no files"


GLOBS = [
    ("app/[id]/*.tsx", "app/[id]/page.tsx", True),
    ("app/[id]/*.tsx", "app/i/page.tsx", True),
    ("app/[[...slug]]/*", "app/[[...slug]]/page.tsx", True),
    ("[user-id].md", "[user-id].md", True),
    ("[user-id].md", "u.md", False),
    ("a[1].txt", "a[1].txt", True),
    ("{rule}*.md", "{rule} a.md", True),
    ("*.{md}", "a.md", True),
    ("\\{a,b\\}.md", "{a,b}.md", True),
    ("\\{a,b\\}.md", "a.md", False),
    ("\\*.md", "*.md", True),
    ("\\*.md", "a.md", False),
    ("Café*", "Cafe\u0301.md", True),
    ("* PM.png", "Screenshot 3.04\u202fPM.png", True),
    ("*.md", "a.md", True), ("*.md", "x/a.md", True), ("./*.md", "x/a.md", False), ("x/*.md", "x/y/a.md", False),
    ("x/**/*.md", "x/a.md", True), ("x/**/*.md", "x/y/z/a.md", True), ("**", "x/y", True), ("a?c", "abc", True),
    ("a?c", "a/c", False), ("[a-c].x", "b.x", True), ("[!a-c].x", "b.x", False), ("a.c", "abc", False),
    ("{a,b}/*", "b/x", True), ("{a,b}/*", "c/x", False), ("a,b", "a,b", True), ("[", "[", True), ("(a|b)", "a", False),
    ("*", ".hidden", True), ("水*", "水车", True), ("*\n", "a\n", True),
]  # fmt: skip


@pytest.mark.parametrize(("glob", "path", "expected"), GLOBS)
def test_globs_match_like_common_tools(glob: str, path: str, expected: bool) -> None:
    assert compile_glob(glob)(path) is expected


@pytest.mark.parametrize("glob", ["{a", "{" * 400, "*" * 501])
def test_an_invalid_glob_is_refused(glob: str) -> None:
    with pytest.raises(ToolFailed, match="glob: "):
        compile_glob(glob)


def test_no_glob_is_slow() -> None:
    assert not compile_glob("*a" * 200 + "b")("a" * 200)


async def test_grep_streams_matching_lines_with_path_and_line_number(serve: Serve) -> None:
    async with serve() as suite:
        create_file(suite, "a.py", "import os\n\nprint(1)\nimport re as os\n")
        create_file(suite, "b/c.md", "no\r\nIMPORT 水\r\n")
        create_file(suite, "binary", b"import\0")
        pieces, outcome = await suite.execute("grep", '{"pattern": "import.*", "ignoreCase": true}')
        only = await call_tool(suite, "grep", pattern="^import", filesOnly=True)
        in_one_file = await call_tool(suite, "grep", pattern="水$|print\\(", path="a.py")
        globbed = await call_tool(suite, "grep", pattern="import", glob="*.md", ignoreCase=True)
        nothing = await call_tool(suite, "grep", pattern="nowhere")
    assert pieces == [("text", "a.py:1: import os\na.py:4: import re as os\n"), ("text", "b/c.md:2: IMPORT 水\n")]
    assert outcome.result == "".join(text for _, text in pieces).rstrip("\n")
    assert (only, in_one_file, globbed) == ("a.py", "a.py:3: print(1)", "b/c.md:2: IMPORT 水")
    assert nothing == "no matches\n[… 1 files that are not text were not searched; use a command …]"


@pytest.mark.parametrize("pattern", ["[^x]+", "a\\s+b", "a\\nb", "(?s)a.*b"])
async def test_a_pattern_never_matches_across_lines(serve: Serve, pattern: str) -> None:
    async with serve() as suite:
        create_file(suite, "a", "a\nb\n")
        found = await call_tool(suite, "grep", pattern=pattern)
    assert found == ("a:1: a\na:2: b" if pattern == "[^x]+" else "no matches")


@pytest.mark.parametrize("pattern", ["(a", "a**b", "(?=a)", "\\1", "x{2000}"])
async def test_a_pattern_that_re2_rejects_is_a_failed_result(serve: Serve, pattern: str) -> None:
    async with serve() as suite:
        assert "pattern: " in await call_refused(suite, "grep", pattern=pattern)


async def test_a_hostile_pattern_and_huge_lines_are_handled_cheaply(serve: Serve) -> None:
    async with serve() as suite:
        create_file(suite, "a", "a" * 4_000_000 + "needle" + "b" * 4_000_000)
        assert await call_tool(suite, "grep", pattern="(a*)*c") == "no matches"
        found = await call_tool(suite, "grep", pattern="needle")
    assert len(found) < grep.LINE_CHARS_MAX + 20
    assert "needle" in found


@pytest.mark.nightly  # it takes the five seconds that a search may
async def test_a_pattern_with_too_many_states_is_stopped(serve: Serve) -> None:
    letters = bytearray(random.Random(3).choices(b"ab", k=2_000_000))
    letters[::10_000] = b"\n" * 200
    async with serve() as suite:
        create_file(suite, "a", b"c\n" + letters)
        create_file(suite, "b", b"c\n" + letters)
        began_s = time.process_time()
        found = await call_tool(suite, "grep", pattern="([ab]?){900}([ab]?){900}([ab]?){900}c")
        spent_s = time.process_time() - began_s
    assert spent_s < grep.SECONDS_MAX + 5
    assert found == "a:1: c\n[… stopped after 5 s; use a simpler pattern, or a narrower path or glob …]"


async def test_a_search_in_pieces_finds_the_same_matches(serve: Serve) -> None:
    size = grep.STEPS_MAX // 1000
    text = f"first\n{'x' * size}\nneedle\n" + ("y" * 99 + "\n") * 2000 + "last needle"
    async with serve() as suite:
        create_file(suite, "a", text)
        pattern = "(?:[k-m]?){700}needle$|^first$"
        found = await call_tool(suite, "grep", pattern=pattern)
    assert found == (
        "a:1: first\na:3: needle\na:2004: last needle\n[… 1 large files were not searched; use a command …]"
    )


async def test_a_search_is_bounded_and_reports_what_it_omitted(serve: Serve) -> None:
    async with serve() as suite:
        create_file(suite, "a", "needle\n" * 1000)
        create_file(suite, "b", b"needle\n" + bytes(grep.FILE_BYTES_MAX))
        many = await call_tool(suite, "grep", pattern="needle", path="a")
        large = await call_tool(suite, "grep", pattern="needle", path="b")
    assert many.count("needle\n") == grep.MATCHES_MAX
    assert len(many) < RESULT_CHARS_MAX
    assert many.endswith("[… more matches are not shown; narrow the pattern, the path or the glob …]")
    assert large == "no matches\n[… 1 large files were not searched; use a command …]"


async def test_random_edits_never_lose_text(serve: Serve) -> None:
    dice = random.Random(5)
    async with serve() as suite:
        text = "".join(dice.choice("ab\n水") for _ in range(60))
        file = create_file(suite, "a", text)
        for _ in range(150):
            old, new = ("".join(dice.choice("ab\n水") for _ in range(dice.randint(1, 4))) for _ in range(2))
            _, outcome = await suite.execute(
                "edit_file", json.dumps({"path": "a", "oldText": old, "newText": new}, ensure_ascii=False)
            )
            if outcome.result.startswith("replaced") and old not in new:
                assert text.count(old) == 1
                text = text.replace(old, new)
                assert file.read_text() == text
            text = file.read_text()


async def test_a_very_long_line_is_read_in_little_memory(serve: Serve) -> None:
    async with serve() as suite:
        suite.workspace.mkdir(parents=True)
        with (suite.workspace / "long").open("wb") as file:
            for _ in range(60):
                file.write("é".encode() * (512 * 1024))
            file.write(b"\nshort\n")
        before_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        _, start = await suite.execute("read_file", '{"path": "long"}')
        _, end = await suite.execute("read_file", '{"path": "long", "firstLine": 2}')
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kb < 16 * 1024
    assert start.result.endswith("[… cut here; go on with firstLine 1, firstChar 29801 …]")
    assert end.result == "short\n"


async def test_reading_an_image_describes_and_shows_it(serve: Serve) -> None:
    async with serve() as suite:
        data = b"GIF89a\x02\x00\x03\x00" + bytes(20)
        create_file(suite, "outputs/a.gif", data)
        _, outcome = await suite.execute("read_file", json.dumps({"path": "outputs/a.gif"}))
        text = await suite.execute("read_file", json.dumps({"path": "nothing"}))
        create_file(suite, "outputs/large.gif", data + bytes(11 * 1024 * 1024))
        result = await call_refused(suite, "read_file", path="outputs/large.gif")
    assert outcome.result == "[image/gif: outputs/a.gif, 2 x 3 pixels, 30 bytes]"
    assert outcome.shown_paths == ["outputs/a.gif"]
    assert not text[1].shown_paths
    assert "too large to be shown" in result


async def test_an_edit_that_would_make_the_file_too_large_changes_nothing(serve: Serve) -> None:
    async with serve() as suite:
        file = create_file(suite, "a", "x" * 100_000)
        result = await call_refused(suite, "edit_file", path="a", oldText="x", newText="y" * 1000, replaceAll=True)
        assert file.read_text() == "x" * 100_000
    assert result == "'a' would be too large to edit (100000000 characters); use a command"


@pytest.mark.parametrize("first", [5, 10**30])
async def test_reading_beyond_the_end_of_a_file_is_reported(serve: Serve, first: int) -> None:
    async with serve() as suite:
        create_file(suite, "a", "one\ntwo\n")
        result = await call_tool(suite, "read_file", path="a", firstLine=first, lines=10**30)
        whole = await call_tool(suite, "read_file", path="a", lines=10**30)
    assert result == f"[… the file ends before line {first} …]"
    assert whole == "one\ntwo\n"


async def test_the_deepest_writable_file_is_listed_and_a_deeper_one_refused(serve: Serve) -> None:
    async with serve() as suite:
        deepest = "a/" * (DEPTH_MAX - 1) + "x"
        await call_tool(suite, "write_file", path=deepest, content="1")
        listed = await call_tool(suite, "list_files")
        result = await call_refused(suite, "write_file", path=f"a/{deepest}", content="1")
    assert listed == f"{deepest} (1 bytes)"
    assert result.endswith(f"must not lie in more than {DEPTH_MAX - 1} folders")


async def test_a_pattern_matching_everywhere_takes_time_linear_in_the_lines(serve: Serve) -> None:
    async with serve() as suite:
        create_file(suite, "f", b"a" * 8_000_000 + b"\nb\n")
        began_s = time.process_time()
        lines = (await call_tool(suite, "grep", pattern="b*")).splitlines()
        took_s = time.process_time() - began_s
    assert [line[-3:] for line in lines] == ["aa…", ": b", "3: "]
    assert took_s < 3, "it took 8 s, a microsecond for each byte"


async def test_every_character_of_a_long_line_can_be_read(serve: Serve) -> None:
    async with serve() as suite:
        text = "".join(f"{number:07}" for number in range(30_000))
        create_file(suite, "a", f"first\n{text}\nlast\n")
        read_text, place = "", {"firstLine": 2, "firstChar": 1}
        while len(read_text) < len(text):
            result = await call_tool(suite, "read_file", path="a", lines=1, **place)
            piece, _, note = result.partition("\n[…")
            read_text += piece
            place["firstChar"] += len(piece)
            assert not note or f"firstLine 2, firstChar {place['firstChar']} " in note
        beyond_end = await call_tool(suite, "read_file", path="a", firstLine=3, firstChar=9)
    assert read_text == text + "\n"
    assert beyond_end == "[… line 3 ends before character 9 …]"


@pytest.mark.parametrize("comment", [b"%\xe2\xe3\xcf\xd3\n", b""])
async def test_a_pdf_is_named_as_such_and_is_not_taken_for_text(serve: Serve, comment: bytes) -> None:
    async with serve() as suite:
        create_file(
            suite, "a.pdf", b"%PDF-1.7\n" + comment + b"1 0 obj\n<</Length 9>>stream\n\xd8\xe7\xf1 BT ET\n" * 100
        )
        said = await call_refused(suite, "read_file", path="a.pdf")
        assert "not a text file" in await call_refused(suite, "edit_file", path="a.pdf", oldText="BT", newText="ET")
        searched = await call_tool(suite, "grep", pattern="stream")
    assert said.startswith("'a.pdf' is not a text file but application/pdf (")
    assert "1 files that are not text were not searched" in searched


CSV = "Name;Stadt\nMüller;Köln\n"


@pytest.mark.parametrize(
    ("charset", "text", "shown_charset"),
    [
        ("cp1252", CSV, "windows-1252"),
        ("cp1252", "Müller", "windows-1252"),
        ("cp1252", "x" * 200_000 + "\nnaïve – “quoted”\n", "windows-1252"),
        ("cp1251", "Имя;Город\nИван;Москва\n", "windows-1251"),
        ("shift_jis", "名前,都市\n田中,東京\n", "cp932"),
        ("gb18030", "姓名,城市\n王伟,北京\n", "gb18030"),
        ("utf-16", CSV, "utf-16-le"),
        ("utf-16-be", CSV, "utf-16-be"),
        ("utf-32", CSV, "utf-32-le"),
        ("utf-8-sig", CSV, ""),
        ("utf-8", CSV, ""),
    ],
)
async def test_a_file_is_read_searched_and_edited_in_its_charset(
    serve: Serve, charset: str, text: str, shown_charset: str
) -> None:
    last = text.splitlines()[-1]
    line = text.count("\n", 0, -1) + 1
    async with serve() as suite:
        file = create_file(suite, "a.csv", text.encode(charset))
        read = await call_tool(suite, "read_file", path="a.csv", firstLine=line)
        found = await call_tool(suite, "grep", pattern=last)
        result = await call_tool(suite, "edit_file", path="a.csv", oldText=last, newText=f"{last};!")
        assert file.read_bytes() == text.replace(last, f"{last};!").encode(charset)
    assert read.splitlines()[0] == last
    assert (f"[… decoded from {shown_charset} …]" in read) is bool(shown_charset)
    assert found == f"a.csv:{line}: {last}"
    assert result == "replaced 1 occurrence in a.csv" + (f", which stays in {shown_charset}" if shown_charset else "")


async def test_an_edit_with_a_character_outside_the_charset_changes_nothing(serve: Serve) -> None:
    async with serve() as suite:
        file = create_file(suite, "a", CSV.encode("cp1252"))
        result = await call_refused(suite, "edit_file", path="a", oldText="Köln", newText="Łódź")
        assert file.read_bytes() == CSV.encode("cp1252")
    assert result == "'a' is in windows-1252, which has no 'Ł'; write the file anew, in UTF-8"


async def test_invalid_bytes_survive_an_edit(serve: Serve) -> None:
    async with serve() as suite:
        file = create_file(suite, "a", "Größe, Höhe, Länge: ".encode() + b"\xff\n")
        await call_tool(suite, "edit_file", path="a", oldText="Höhe", newText="Breite")
        assert file.read_bytes() == "Größe, Breite, Länge: ".encode() + b"\xff\n"


@pytest.mark.parametrize(
    ("content", "old", "new", "after"),
    [
        (b"one\r\ntwo\r\n", "one\ntwo", "1\n2", b"1\r\n2\r\n"),
        (b"one\r\ntwo\r\n", "two", "2\n3", b"one\r\n2\r\n3\r\n"),
        (b"one\ntwo\n", "one\r\ntwo", "1\r\n2", b"1\n2\n"),
        (b"one\r\ntwo\n", "one\r\ntwo", "1\n2", b"1\n2\n"),
        (b"one\r\ntwo\r\nthree\nfour\n", "one\ntwo", "1\n2", b"1\r\n2\r\nthree\nfour\n"),
        (b"one\r\ntwo\r\nthree\nfour\n", "three\r\nfour", "3\r\n4", b"one\r\ntwo\r\n3\n4\n"),
    ],
)
async def test_an_edit_keeps_the_line_endings(serve: Serve, content: bytes, old: str, new: str, after: bytes) -> None:
    async with serve() as suite:
        file = create_file(suite, "a", content)
        await call_tool(suite, "edit_file", path="a", oldText=old, newText=new)
        assert file.read_bytes() == after


@pytest.mark.parametrize("tool", ["edit_file", "write_file"])
async def test_writing_keeps_a_files_mode_and_links_to_it(serve: Serve, tool: str) -> None:
    arguments = {"oldText": "echo", "newText": "printf"} if tool == "edit_file" else {"content": "printf hi\n"}
    async with serve() as suite:
        script = create_file(suite, "bin/run.sh", "echo hi\n")
        script.chmod(0o755)
        create_file(suite, "outputs/other")
        (suite.workspace / "outputs" / "again").symlink_to("run")
        (suite.workspace / "outputs" / "run").symlink_to("../bin/run.sh")
        await call_tool(suite, tool, path="outputs/again", **arguments)
        assert (suite.workspace / "outputs" / "again").is_symlink()
        assert (script.read_text(), script.stat().st_mode & 0o777) == ("printf hi\n", 0o755)
        assert [path.name for path in script.parent.iterdir()] == ["run.sh"]


async def test_reading_an_empty_file_reports_that_it_is_empty(serve: Serve) -> None:
    async with serve() as suite:
        create_file(suite, "empty")
        create_file(suite, "marked", b"\xef\xbb\xbf")
        create_file(suite, "blank", "\n")
        assert await call_tool(suite, "read_file", path="empty") == "[… the file is empty …]"
        assert await call_tool(suite, "read_file", path="marked") == "[… the file is empty …]"
        assert await call_tool(suite, "read_file", path="blank") == "\n"


async def test_grep_and_read_file_count_lines_alike(serve: Serve) -> None:
    async with serve() as suite:
        create_file(suite, "log", "10%\r20%\r30%\nfound it\n")
        assert await call_tool(suite, "grep", pattern="found") == "log:2: found it"
        assert await call_tool(suite, "read_file", path="log", firstLine=2) == "found it\n"
        assert await call_tool(suite, "read_file", path="log", lines=1) == "10%\r20%\r30%\n"
        assert await call_tool(suite, "read_file", path="log", firstChar=5, lines=1) == "20%\r30%\n"


async def test_alternatives_as_grep_writes_them_are_told_where_nothing_matches(serve: Serve) -> None:
    async with serve() as suite:
        create_file(suite, "a", "one\ntwo | three\n")
        said = await call_tool(suite, "grep", pattern=r"one\|three")
        assert await call_tool(suite, "grep", pattern=r"two \| three") == "a:2: two | three"
    assert said == "no matches\n[… \\| is the character |; alternatives are one|other …]"


@pytest.mark.parametrize(
    "content", [b"first\r\nlast\r\n", b"\xef\xbb\xbffirst\nlast", "first\r\nlast".encode("utf-16")]
)
async def test_anchors_match_at_windows_line_endings(serve: Serve, content: bytes) -> None:
    async with serve() as suite:
        create_file(suite, "a", content)
        assert await call_tool(suite, "grep", pattern="^first$") == "a:1: first"
        assert await call_tool(suite, "grep", pattern="^last$") == "a:2: last"
