"""Fits pages written for GitHub to MkDocs: the README as the first page, files outside docs/, marked blocks, drawings.

Links that lead out of docs/ get a page of the site, below project/, with the file's text or the folder's list.
"""

from __future__ import annotations

import json
import posixpath
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from docs.generate.markdown import slug
from docs.site.__main__ import ROOT, TOOLS
from services.facade.openapi.document import build_contract_document

_FENCE = re.compile(r"^([ ]*)```(\S+)[ ]+([^\n]+)$", re.MULTILINE)
_LINK = re.compile(r"(?<=\]\()([^)\s#:]+)(?=[)#])")
_CODE = re.compile(r"(^[ ]*```.*?^[ ]*```$|`[^`\n]+`)", re.MULTILINE | re.DOTALL)
_DRAWN_FONT = re.compile(r"@import .*?\);|text {[^}]*}")
"""What would load a drawing's font from another host; without it a drawing has the page's."""

_TEXT_BYTES_MAX = 200_000

_HIDDEN = {
    "README.md": ["navigation", "toc"],
    "docs/concepts.md": ["navigation"],
    "docs/reference/api.md": ["navigation", "toc"],
}
"""Columns that a page does without."""

_BOOSTS = {"docs/guides": 2, "docs/decisions": 0.2}
"""How much the search prefers the pages of a folder."""

_TITLES = {"output": "Output", "window": "First window"}

_BUTTONS = (
    "[Start](start.md){ .md-button .md-button--primary } [Concepts](concepts.md){ .md-button } "
    "[HTTP API](reference/api.md){ .md-button }"
)

_DRAW = """
import { renderMermaidSVG } from "beautiful-mermaid";
let text = "";
for await (const chunk of process.stdin) text += chunk;
process.stdout.write(renderMermaidSVG(text, { bg: "var(--md-default-bg-color)", fg: "var(--md-typeset-color)",
  accent: "var(--md-accent-fg-color)", muted: "var(--md-default-fg-color--light)", transparent: true, padding: 8 }));
"""


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the README, the pages that links outside docs/ need, the API document and the icon."""
    pages = [f"docs/{file.src_uri}" for file in files.documentation_pages()]
    known = {*pages, *(f"docs/{file.src_uri}" for file in files)}
    waiting = ["README.md", *pages]
    while waiting:
        path = waiting.pop()
        if path not in known:
            known.add(path)
            files.append(File.generated(config, to_uri(path), content=read_page(path)))
        waiting += [target for target in list_targets(path) if target not in known]
    icon = ROOT / "services" / "facade" / "console" / "static" / "icon.svg"
    files.append(File.generated(config, "icon.svg", abs_src_path=str(icon)))
    files.append(File.generated(config, "reference/scalar.js", abs_src_path=str(TOOLS / "standalone.js")))
    files.append(File.generated(config, "reference/openapi.json", content=json.dumps(build_contract_document())))
    files.append(File.generated(config, "reference/api.md", content="---\ntemplate: api.html\n---\n# HTTP API\n"))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    path = to_path(page.file.src_uri)
    page.meta.setdefault("hide", _HIDDEN.get(path, []))
    page.meta.setdefault(
        "search", {"boost": _BOOSTS.get(posixpath.dirname(path), 1)} if path.endswith(".md") else {"exclude": True}
    )
    pieces = _CODE.split(markdown)
    for number, piece in enumerate(pieces):
        if number % 2:
            pieces[number] = _FENCE.sub(_mark_fence, piece)
        else:
            pieces[number] = _LINK.sub(lambda found: _relink(found[1], path), piece)
    return "".join(pieces) if path != "README.md" else "".join(pieces).replace("![", f"{_BUTTONS}\n\n![", 1)


def slugify(heading: str, _: str) -> str:
    """Return the anchor that GitHub generates, which the pages' links name."""
    return slug(heading)


def draw(source: str, *_: Any, **__: Any) -> str:
    """Return a mermaid diagram as SVG in the colours of the page."""
    drawn = subprocess.run(
        ["node", "--input-type=module", "-e", _DRAW],
        cwd=TOOLS,
        input=source,
        text=True,
        check=True,
        capture_output=True,
    ).stdout
    return f'<figure class="drawing">{_DRAWN_FONT.sub("", drawn)}</figure>'


def list_targets(path: str) -> Iterator[str]:
    """Yield the files outside docs/ and the folders that a page's links lead to."""
    if path.endswith(".md") or (ROOT / path).is_dir():
        for piece in _CODE.split(read_page(path))[::2]:
            for target in _LINK.findall(piece):
                found = posixpath.normpath(posixpath.join(_folder(path), target))
                if (ROOT / found).exists() and (not found.startswith("docs/") or (ROOT / found).is_dir()):
                    yield found


def read_page(path: str) -> str:
    """Return a page of any file of the project: Markdown unchanged, other text as a block, a folder as a list."""
    source = ROOT / path
    if source.is_dir():
        names = sorted(entry.name for entry in source.iterdir() if entry.is_file())
        return f"# {path}\n\n" + "\n".join(f"- [{_read_title(source / name)}]({name})" for name in names)
    text = source.read_text()
    if path.endswith(".md"):
        return text
    return f"# {source.name}\n\n`{path}`\n\n```{source.suffix[1:]}\n{text[:_TEXT_BYTES_MAX]}\n```\n"


def to_uri(path: str) -> str:
    """Return where the site has a file of the project."""
    if path == "README.md":
        return "README.md"
    uri = path.removeprefix("docs/") if path.startswith("docs/") else f"project/{path}"
    if (ROOT / path).is_dir():
        return f"{uri}/README.md"
    return uri if path.startswith("docs/") or path.endswith(".md") else f"{uri}.md"


def to_path(uri: str) -> str:
    """Return which file of the project a page of the site shows; the reverse of `to_uri`."""
    if not uri.startswith("project/"):
        return uri if uri == "README.md" else f"docs/{uri}"
    path = uri.removeprefix("project/")
    return next(name for name in (path, path.removesuffix(".md"), posixpath.dirname(path)) if (ROOT / name).exists())


def _relink(target: str, path: str) -> str:
    found = posixpath.normpath(posixpath.join(_folder(path), target))
    return posixpath.relpath(to_uri(found), posixpath.dirname(to_uri(path)) or ".")


def _folder(path: str) -> str:
    return path if (ROOT / path).is_dir() else posixpath.dirname(path)


def _mark_fence(fence: re.Match[str]) -> str:
    """Turn the words that tests read after a fence's language into a title, or drop them."""
    indent, form, use = fence.groups()
    title = use.removeprefix("file ") if use.startswith("file ") else _TITLES.get(use, "")
    return f"{indent}```{form}" + (f' title="{title}"' if title else "")


def _read_title(path: Path) -> str:
    """Return a page's first heading, or a file's name."""
    if path.suffix != ".md":
        return path.name
    return path.read_text().partition("\n")[0].lstrip("# ")
