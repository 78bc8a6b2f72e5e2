"""Reads and writes the regions of docs/reliability.md that trials fill."""

from trials.support.commands import ROOT

PAGE = ROOT / "docs/reliability.md"


def write_region(name: str, text: str) -> None:
    PAGE.write_text(fill_region(PAGE.read_text(), name, text))


def read_region(name: str) -> str:
    return PAGE.read_text().partition(f"<!-- {name} -->\n")[2].partition("<!-- end -->\n")[0]


def fill_region(page: str, name: str, text: str) -> str:
    """Return the page with `text`, which ends with a newline, between `<!-- name -->` and the next `<!-- end -->`."""
    begin, end = f"<!-- {name} -->\n", "<!-- end -->\n"
    before, _, rest = page.partition(begin)
    _, _, after = rest.partition(end)
    return f"{before}{begin}{text}{end}{after}"
