"""`python -m docs.generate`: write the generated regions of all pages. With --check, only list outdated pages."""

from __future__ import annotations

import sys

from docs.generate.pages import PAGES, fill_page


def main() -> None:
    """Write the outdated pages; with --check, exit with 1 if there are any."""
    outdated = [page for page in PAGES if fill_page(page.read_text()) != page.read_text()]
    for page in outdated:
        if "--check" not in sys.argv:
            page.write_text(fill_page(page.read_text()))
        sys.stdout.write(f"{page}\n")
    if outdated and "--check" in sys.argv:
        sys.exit("these pages do not match the code; run `make gen`")


if __name__ == "__main__":
    main()
