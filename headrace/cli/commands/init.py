"""headrace init: a configuration folder to begin with, from the templates in headrace/cli/project."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from headrace.cli.facade.exit_codes import FAILED

TEMPLATES = Path(__file__).parents[1] / "project"
"""Names end in `.in`, and `dot.` becomes a leading dot; @PROVIDER@ and @MODEL@ are replaced."""

PROVIDERS: dict[str, dict[str, Any]] = json.loads(TEMPLATES.with_name("project_providers.json").read_text())
"""Entry of providers.json by name, with the variables that it needs and their defaults."""

DEFAULT = "openai"

OTHER_VARIABLES = {"GITHUB_TOKEN": ""}
"""Variables of the tools."""


@click.command()
@click.argument("folder", metavar="DIR", type=click.Path(file_okay=False, path_type=Path))
@click.option(
    "--provider",
    type=click.Choice(list(PROVIDERS)),
    help="Provider of the agent's model. Without it, a terminal asks; elsewhere it is the first with a key in the "
    f"environment, or {DEFAULT}.",
)
def init(folder: Path, provider: str | None) -> None:
    """Create a project folder with an agent, tools and a test.

    Existing files are never overwritten: if DIR has one of the files, nothing is written.
    """
    if provider is None:
        keyed = (name for name, one in PROVIDERS.items() if any(os.environ.get(key) for key in one["env"]))
        provider = next(keyed, DEFAULT)
        if sys.stdin.isatty():
            provider = str(click.prompt("Provider", type=click.Choice(list(PROVIDERS)), default=provider))
    files = dict(_render_files(provider))
    if taken := [name for name in files if os.path.lexists(folder / name)]:
        others = f" and {len(taken) - 1} other files" if len(taken) > 1 else ""
        raise click.ClickException(f"{folder} already has {taken[0]}{others}; name a new folder. Nothing was written.")
    try:
        for name, text in files.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            # The file of keys is for its owner alone; exclusively, because another process may have just created one.
            with os.fdopen(os.open(folder / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644), "w") as file:
                os.fchmod(file.fileno(), 0o600 if name == ".env" else 0o644)
                file.write(text)
    except OSError as error:
        click.echo(f"Error: {error.filename or folder} cannot be written: {error.strerror}", err=True)
        sys.exit(FAILED)
    for name in files:
        click.echo(f"  {folder / name}")
    unset = [name for name, value in PROVIDERS[provider]["env"].items() if not (value or os.environ.get(name))]
    if unset:
        click.echo(f"\nPut {', '.join(unset)} into {folder / '.env'}, then:")
    else:
        click.echo("\nNext:")
    click.echo(f"  cd {folder}\n  headrace up{' --simulate' if provider == 'simulator' else ''}")


def _render_files(provider: str) -> Iterator[tuple[str, str]]:
    """Yield the path and the text of each file."""
    chosen = PROVIDERS[provider]
    entry = chosen["entry"]
    for template in sorted(TEMPLATES.rglob("*.in")):
        text = template.read_text().replace("@PROVIDER@", entry["key"]).replace("@MODEL@", entry["models"][0]["name"])
        name = str(template.relative_to(TEMPLATES)).removesuffix(".in")
        yield name.removeprefix("dot") if name.startswith("dot.") else name, text
    yield "providers.json", json.dumps({"providers": [entry]}, indent=2, ensure_ascii=False) + "\n"
    variables: dict[str, str] = chosen["env"] | OTHER_VARIABLES
    head = "# `headrace up` reads this file; variables that are already set take precedence.\n"
    yield ".env", head + "".join(f"{name}={value}\n" for name, value in variables.items())
