"""`python -m docs.site [VERSION [FOLDER]]`: build the documentation as a site, and fail on a broken link.

The first build fetches two npm packages to build/site_tools; later builds need no network. Each version is a folder
of FOLDER (build/site), and the versions.json there lists them for the theme's version menu.
"""

from __future__ import annotations

import json
import logging
import re
import subprocess
import sys
import tarfile
from pathlib import Path

from mkdocs.commands.build import build
from mkdocs.config import load_config

ROOT = Path(__file__).parents[2]
TOOLS = ROOT / "build" / "site_tools"

API_REFERENCE = "@scalar/api-reference@1.72.1"
DRAWING = "beautiful-mermaid@1.1.3"

_LOADED = re.compile(
    r"<(?:script|img|iframe|source)\b[^>]*\bsrc=[\"']?https?:[^>]*>|<link\b[^>]*\bhref=[\"']?https?:[^>]*>"
)
_LOADED_BY_STYLE = re.compile(r"(?:url\([\"']?|@import\s+[\"'])https?:[^)\"']*")


def main(version: str = "dev", site: str = str(ROOT / "build" / "site")) -> None:
    """Build one version of the site.

    Raises:
        SystemExit: a link or an anchor is broken, or a page would load something from another host.
    """
    logging.basicConfig(level=logging.WARNING, format="%(message)s")
    install_tools()
    folder = Path(site) / version
    build(load_config(str(Path(__file__).with_name("mkdocs.yml")), site_dir=str(folder), strict=True))
    if foreign := list_foreign_resources(folder):
        raise SystemExit("\n".join(["loaded from other hosts:", *foreign]))
    versions = sorted(
        (path.parent.name for path in folder.parent.glob("*/index.html")), key=_order_version, reverse=True
    )
    listed = [{"version": name, "title": name, "aliases": []} for name in versions]
    (folder.parent / "versions.json").write_text(json.dumps(listed))
    (folder.parent / "index.html").write_text(f'<meta http-equiv="refresh" content="0; url={versions[0]}/">\n')
    sys.stdout.write(f"{folder / 'index.html'}\n")


def install_tools() -> None:
    if not (TOOLS / "node_modules").exists():
        TOOLS.mkdir(parents=True, exist_ok=True)
        npm = ("npm", "install", "--silent", "--no-package-lock", "--ignore-scripts", "--prefix", str(TOOLS))
        subprocess.run([*npm, DRAWING], check=True)
    if not (TOOLS / "standalone.js").exists():
        # Installed with its dependencies, which the bundle has built in, the package takes 290 MB.
        pack = ("npm", "pack", "--silent", "--pack-destination", str(TOOLS), API_REFERENCE)
        name = subprocess.run(pack, check=True, stdout=subprocess.PIPE, text=True).stdout.split()[-1]
        with tarfile.open(TOOLS / name) as archive:
            bundle = archive.extractfile("package/dist/browser/standalone.js")
            assert bundle is not None
            (TOOLS / "standalone.js").write_bytes(bundle.read())
        (TOOLS / name).unlink()


def list_foreign_resources(folder: Path) -> list[str]:
    """Return what the pages and styles of a built site would load from other hosts."""
    found: list[str] = []
    for path in sorted(folder.rglob("*")):
        if path.suffix in (".html", ".css", ".svg"):
            text = path.read_text()
            pattern = _LOADED_BY_STYLE if path.suffix == ".css" else _LOADED
            found += [f"{path.relative_to(folder)}: {match[0]}" for match in pattern.finditer(text)]
            if path.suffix != ".css":
                styles = "".join(re.findall(r"<style>(.*?)</style>", text, re.DOTALL))
                found += [f"{path.relative_to(folder)}: {match[0]}" for match in _LOADED_BY_STYLE.finditer(styles)]
    return found


def _order_version(name: str) -> list[int]:
    """Return a sort key: `dev` comes after all numbers."""
    return [int(part) for part in re.findall(r"\d+", name)] if name != "dev" else [sys.maxsize]


if __name__ == "__main__":
    main(*sys.argv[1:])
