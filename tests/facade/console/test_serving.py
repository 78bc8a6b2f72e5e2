"""The console's files over HTTP, without a browser."""

import re
from pathlib import Path

import aiohttp
import pytest

from services.facade.console import serving as console
from tests.support.facade.scripted import suite

STATIC = console.STATIC
FILES = sorted(STATIC.rglob("*.*"))
MODULES = sorted(str(path.relative_to(STATIC)) for path in STATIC.rglob("*.js"))

FOLDERS = (
    "pages",
    "agents",
    "chat",
    "run",
    "people",
    "navigation",
    "markdown",
    "events",
    "server",
    "elements",
    "client",
    "vendor",
)
"""The folders of the modules from the top to the bottom, main.js above them all: imports go downwards."""


async def test_every_file_is_served_with_its_type_and_a_security_policy(tmp_path: Path) -> None:
    async with suite(tmp_path) as facade:
        for file in FILES:
            path = file.relative_to(STATIC)
            async with facade.http.get("/" if file.name == "index.html" else f"/console/{path}") as response:
                assert (response.status, await response.read()) == (200, file.read_bytes())
                assert response.headers["Content-Type"] == console.TYPES[file.suffix[1:]]
                assert response.headers["X-Content-Type-Options"] == "nosniff"
                is_frame = file.name == console.FRAME
                policy = response.headers["Content-Security-Policy"]
                assert ("unsafe-inline" in policy) == ("sandbox allow-scripts" in policy) == is_frame


async def test_an_unchanged_file_is_not_sent_again(tmp_path: Path) -> None:
    async with suite(tmp_path) as facade:
        async with facade.http.get("/") as response:
            headers = {"If-None-Match": response.headers["ETag"]}
        async with facade.http.get("/", headers=headers) as response:
            assert (response.status, await response.read()) == (304, b"")
            assert response.headers["Content-Security-Policy"] == console.PAGE_POLICY
        async with facade.http.get("/", headers={"If-None-Match": '"x"'}) as response:
            assert response.status == 200


async def test_a_file_is_compressed_when_the_client_accepts_gzip(tmp_path: Path) -> None:
    async with suite(tmp_path) as facade:
        for headers, encoding in (({}, "gzip"), ({"Accept-Encoding": "identity"}, None)):
            async with facade.http.get("/console/main.js", headers=headers) as response:
                assert response.headers.get("Content-Encoding") == encoding
                assert response.headers["Vary"] == "Accept-Encoding"
                assert await response.read() == (STATIC / "main.js").read_bytes()


@pytest.mark.parametrize("path", ["/console/", "/console/nothing.js", "/console/../serving.py", "/console/%2e%2e/x"])
async def test_other_paths_are_not_served(tmp_path: Path, path: str) -> None:
    async with suite(tmp_path) as facade, aiohttp.ClientSession() as http, http.get(facade.url + path) as response:
        assert response.status == 404


def imported_files(module: str) -> list[Path]:
    folder = (STATIC / module).parent
    names = re.findall(r'(?:from |import\()"([^"]*)"', (STATIC / module).read_text())
    return [(folder / name).resolve() for name in names]


@pytest.mark.parametrize("module", [name for name in MODULES if name != "main.js"])
def test_modules_import_only_from_lower_folders(module: str) -> None:
    folders = [path.parent.name for path in imported_files(module)]
    assert [name for name in folders if FOLDERS.index(name) < FOLDERS.index(module.split("/")[0])] == []


@pytest.mark.parametrize("module", MODULES)
def test_modules_import_nothing_external_and_build_no_markup_from_strings(module: str) -> None:
    text = (STATIC / module).read_text()
    assert {str(path.relative_to(STATIC)) for path in imported_files(module)} <= set(MODULES)
    if module != "vendor/highlight.js":  # it may write into elements, which nothing here asks it for
        assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|new Function", text)


def test_page_and_styles_load_nothing_external() -> None:
    for file in FILES:
        if file.parent.name == "vendor":  # it makes text of tags, which nothing here asks it for
            continue
        text = file.read_text()
        addresses = re.findall(r'(?:src|href)="([^"]*)"', text) + re.findall(r"url\(([^)]*)\)", text)
        assert [address for address in addresses if not address.startswith(("/console/", "#"))] == []
        assert "@import" not in text
