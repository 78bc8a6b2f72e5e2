"""Code, protos and documents use the terms of docs/glossary.md and not the ones it replaces."""

import io
import re
import subprocess
import tokenize
from collections.abc import Iterator
from pathlib import Path

from tests.support.pages import ROOT

PAGE = ROOT / "docs/glossary.md"
SUFFIXES = (".py", ".proto", ".go", ".js", ".ts", ".md")
FOLDERS = ("headrace", "services", "protos", "deploy", "packaging", "trials", "benchmarks", "tests", "docs", "examples")

TERMS, KEPT = PAGE.read_text().split("## Names that stay")
REPLACED = sorted(set(re.findall(r"`(\w+)`", " ".join(row.split("|")[3] for row in re.findall(r"^\|.*", TERMS, re.M)))))
KEPT_NAMES = frozenset(re.findall(r"`(\w+)`", KEPT))
CODE_WORD, QUOTED = re.compile(r"[A-Za-z_]\w*"), re.compile(r"`(\w+)`")
COMMENT = re.compile(r"//.*")
ANY = re.compile("|".join({*REPLACED, *(word.replace("_", "") for word in REPLACED)}), re.I)


def list_names(path: Path) -> Iterator[str]:
    """Yield the parts of a file's path, its identifiers, and the words that its texts quote."""
    text = path.read_text(errors="replace")
    yield from CODE_WORD.findall(str(path.relative_to(ROOT).with_suffix("")))
    if not ANY.search(text):  # most files: tokens take long
        return
    yield from QUOTED.findall(text)
    if path.suffix == ".py":
        tokens = tokenize.generate_tokens(io.StringIO(text).readline)
        yield from (token.string for token in tokens if token.type == tokenize.NAME)
    elif path.suffix != ".md":
        yield from CODE_WORD.findall(COMMENT.sub("", text))


def list_files() -> Iterator[Path]:
    listed = subprocess.check_output(["git", "ls-files", "-z", "--", *FOLDERS], cwd=ROOT, text=True)
    for name in filter(None, listed.split("\0")):
        path = ROOT / name
        if path.suffix in SUFFIXES and path != PAGE and "_pb2" not in name and path.exists():
            yield path


def to_snake(word: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", word).lower()


def test_no_name_the_glossary_replaces_is_used() -> None:
    words = {(path, word) for path in list_files() for word in {*list_names(path)} - KEPT_NAMES}
    replaced = re.compile(rf"(?:^|_)(?:{'|'.join(REPLACED)})(?:_|$)")
    assert [f"{path}: {word}" for path, word in sorted(words) if replaced.search(to_snake(word))] == []
