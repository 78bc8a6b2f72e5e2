"""Every page named in the code or linked in the docs exists, with the section referred to."""

import ast
import io
import re
import tokenize
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from headrace.cli import main
from services.facade.proto_routes import load_routes
from services.runtime.formats.json_form import rules_of
from tests.support.pages import BLOCK, PAGES, ROOT, list_anchors, to_anchor

CODE = [
    path
    for top in ("headrace", "services", "benchmarks", "trials", "protos", "deploy", "docs/generate")
    for path in sorted((ROOT / top).rglob("*"))
    if path.suffix in (".py", ".proto", ".go", ".yaml", ".js", ".sql", "")
    and path.is_file()
    and "gen" not in path.parts
]
TESTS = sorted((ROOT / "tests").rglob("*.py"))

NAME = re.compile(r"(?<![\w/.<>*}-])((?:[\w-]+/)*[\w-]+\.md)(?:#([\w-]+))?")
FOLDERS = ("", "docs/", "docs/reference/", "docs/guides/", "docs/operating/", "examples/")
"""The folders in which a page is looked for, in this order."""

NO_PAGES = frozenset({"SKILL.md"})
"""Files of users, which are no pages of ours."""

LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")


def list_words(path: Path) -> Iterator[str]:
    """Yield the comments and strings of a source file; of a test, whose strings are data, not the strings."""
    source = path.read_text(errors="replace")
    if path.suffix != ".py" or ".md" not in source:  # most files name no page, and tokens take long
        yield source
        return
    is_test = path in TESTS
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT or (token.type == tokenize.STRING and not is_test):
            yield token.string
    if is_test:
        kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
        yield from (ast.get_docstring(node) or "" for node in ast.walk(ast.parse(source)) if isinstance(node, kinds))


def find_page(name: str) -> Path | None:
    return next((path for folder in FOLDERS if (path := ROOT / folder / name).is_file()), None)


def list_missing(path: Path) -> list[str]:
    """List the pages and sections that a source file names but that do not exist."""
    missing: list[str] = []
    for words in list_words(path):
        for name, anchor in NAME.findall(words):
            page = find_page(name)
            if name in NO_PAGES or name.startswith("outputs/"):
                continue
            if page is None or (anchor and anchor not in list_anchors(page.read_text())):
                missing.append(f"{path.relative_to(ROOT)}: {name}{'#' + anchor if anchor else ''}")
    return missing


def test_every_page_named_in_the_code_exists() -> None:
    assert [name for path in (*CODE, *TESTS) for name in list_missing(path)] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_of_a_page_has_a_target(page: Path) -> None:
    text = BLOCK.sub("", page.read_text())
    for target in LINK.findall(text):
        if target.startswith(("http://", "https://")):
            continue
        name, _, anchor = target.partition("#")
        linked = (page.parent / name).resolve() if name else page
        assert linked.exists(), target
        if anchor:
            assert anchor in list_anchors(linked.read_text()), target


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_no_two_sections_of_a_page_have_the_same_anchor(page: Path) -> None:
    headings = re.findall(r"^#+ (.+)$", BLOCK.sub("", page.read_text()), re.MULTILINE)
    assert [anchor for anchor, count in Counter(map(to_anchor, headings)).items() if count > 1] == []


ALIASES = {
    route.path: rules_of(field).alias
    for route in load_routes()
    for field in route.rpc.input_type.fields
    if rules_of(field).alias
}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_example_bodies_use_the_reference_names_of_fields(page: Path) -> None:
    paragraphs = page.read_text().split("\n\n")
    for path, alias in ALIASES.items():
        assert [text for text in paragraphs if path in text and re.search(rf"\"{alias}\\?\"\s*:", text)] == []


COMMAND = re.compile(r"(?<!`)`headrace\s([^`]+)`(?!`)")


def find_unknown_word(line: str) -> str | None:
    """Return the first word of a headrace command line that is neither a command nor an option of its command."""
    command, words = main, line.split()
    while isinstance(command, click.Group) and words and words[0].islower() and not words[0].startswith("-"):
        found = command.get_command(click.Context(command), words[0])
        if found is None:
            return words[0]
        command, words = found, words[1:]
    known = {"--help", "--version"} | {name for param in command.params for name in param.opts}
    return next((word for word in words if word.startswith("--") and word.partition("=")[0] not in known), None)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_command_named_by_a_page_exists(page: Path) -> None:
    lines = COMMAND.findall(page.read_text())
    assert [(line, word) for line in lines if (word := find_unknown_word(line))] == []


def test_every_reference_page_is_in_the_reference_index() -> None:
    listed = (ROOT / "docs" / "reference" / "README.md").read_text()
    names = [path.name for path in (ROOT / "docs" / "reference").glob("*.md") if path.name != "README.md"]
    assert [name for name in names if f"[{name}]({name})" not in listed] == []


def test_the_checks_detect_violations() -> None:
    assert NAME.findall("see docs/operating.md, or agents.md#budget") == [
        ("docs/operating.md", ""),
        ("agents.md", "budget"),
    ]
    assert NAME.findall("https://example.com/a/b.md and <folder>/x.md") == []
    assert find_page("operating.md") == ROOT / "docs" / "operating.md"
    assert find_page("no_such_page.md") is None


def test_each_decision_has_a_unique_number() -> None:
    numbers = Counter(path.name.split("-")[0] for path in (ROOT / "docs" / "decisions").glob("*.md"))
    assert [number for number, count in numbers.items() if count > 1] == []


SPAN = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")
SOURCE = re.compile(r"(?:[\w.-]+/)*[\w-]+\.(?:py|go|js|sql|proto)\b")
PATH = re.compile(r"(?:services|headrace|docs|deploy|protos|tests|benchmarks)/[\w./]+")
IDENTIFIER = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*(?:\(\))?")

TOPS = [
    "headrace",
    "services",
    "protos",
    "deploy",
    "tests",
    "benchmarks",
    "docs/generate",
    "examples",
    "trials",
    "packaging",
]
FILES = [
    path
    for top in TOPS
    for path in sorted((ROOT / top).rglob("*"))
    if path.is_file() and "node_modules" not in path.parts and path.suffix != ".pyc"
]

OF_READERS = {
    *(
        "modes/NAME.py",
        "file.py",
        "tools/sea_weather.py",
        "modes/second_opinion.py",
        "desk.py",
        "tests/test_assistant.py",
    ),
    *("services/memory/notes", "services/memory/storage/records/notes.py"),
    "services/memory/storage/postgres/migrations/0026_notes.sql",
    "headrace/deploy/helm/headrace/values.yaml",
}
"""Files that a reader writes or clones."""

FOREIGN = frozenset(
    [
        *("PutObject", "GetObject", "DeleteObject", "UseCompressor", "HttpOnly", "invalid_scope", "output_mismatch"),
        *("ErrImagePull", "ImagePullBackOff", "CrashLoopBackOff", "ContainerCreating", "CreateContainerConfigError"),
        *("OTEL_EXPORTER_OTLP_HEADERS", "OTEL_RESOURCE_ATTRIBUTES", "OTEL_TRACES_SAMPLER_ARG", "parentRunId"),
        *(
            "parentbased_traceidratio",
            "FailedGetPodsMetric",
            "wait_event",
            "readOnlyHint",
            "idempotentHint",
            "SETTINGS_HEADER_TABLE_SIZE",
        ),
    ]
)
"""Names of other systems."""

SPANS = [
    (str(page.relative_to(ROOT)), span)
    for page in PAGES
    if page.name not in ("CHANGELOG.md", "glossary.md")  # these have names of the past
    for span in SPAN.findall(BLOCK.sub("", page.read_text()))
]


def test_every_source_file_named_by_a_page_exists() -> None:
    """A page may leave out the first folders of a path."""
    files = [f"/{path.relative_to(ROOT)}" for path in FILES]
    named = {(page, name) for page, span in SPANS for name in SOURCE.findall(span) if name not in OF_READERS}
    assert len(named) > 300
    assert [
        reference for reference in sorted(named) if not any(file.endswith(f"/{reference[1]}") for file in files)
    ] == []
    paths = {(page, span) for page, span in SPANS if PATH.fullmatch(span) and span not in OF_READERS}
    assert [(page, path) for page, path in sorted(paths) if not (ROOT / path).exists()] == []


def test_every_identifier_named_by_a_page_is_in_the_code() -> None:
    """A JSON name counts as its field, and a metric counts without the suffix that Prometheus adds."""
    words = {
        word
        for path in FILES
        if path != Path(__file__)
        for word in re.findall(r"\w+", f"{path} {path.read_text(errors='replace')}")
    }
    words |= FOREIGN

    def is_known(word: str) -> bool:
        field = re.sub(r"[A-Z]", lambda letter: f"_{letter[0].lower()}", word)
        return bool({word, field, word.removesuffix("_total")} & words) or word.isdigit()

    named = {(page, span) for page, span in SPANS if IDENTIFIER.fullmatch(span) and re.search(".[_]|[a-z][A-Z]", span)}
    named -= {("docs/security.md", "NAME__connect")}  # NAME is that of an MCP server
    unknown = [(page, word) for page, span in sorted(named) for word in re.findall(r"\w+", span) if not is_known(word)]
    assert len(named) > 1000
    assert unknown == []
    assert not is_known("no_such_" + "name")
