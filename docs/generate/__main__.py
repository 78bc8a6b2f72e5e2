"""`python -m docs.generate`: write the generated regions of all pages. With --check only name the pages that differ."""

from __future__ import annotations

import sys

from docs.generate.pages import PAGES, fill_page


def main() -> None:
    """Write the pages, or exit with 1 when one is not what the code says."""
    outdated = [page for page in PAGES if fill_page(page.read_text()) != page.read_text()]
    for page in outdated:
        if "--check" not in sys.argv:
            page.write_text(fill_page(page.read_text()))
        sys.stdout.write(f"{page}\n")
    if outdated and "--check" in sys.argv:
        sys.exit("these pages are not what the code says; `make gen` writes them")


if __name__ == "__main__":
    main()
