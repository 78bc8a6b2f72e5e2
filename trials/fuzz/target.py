"""`python -m trials.fuzz.target sse [libFuzzer options]`: search for inputs that break one target's promise."""

from __future__ import annotations

import sys
from pathlib import Path

import atheris  # pyright: ignore[reportMissingImports, reportMissingModuleSource] - the trial installs it

instrumented = atheris.instrument_imports  # pyright: ignore[reportAttributeAccessIssue] - it does not say that it exports

with instrumented(include=["headrace", "services"]):
    from trials.fuzz import http2, log_lines, sse, templates, triple_quotes

TARGETS = {
    "sse": sse.check,
    "log_lines": log_lines.check,
    "triple_quotes": triple_quotes.check,
    "templates": templates.check,
    "http2": http2.check,
}
OPTIONS = ("-max_len=1024", "-rss_limit_mb=512", "-timeout=10", "-keep_seed=1")
"""Options of libFuzzer. It sees no coverage of parsers written in C, so without keep_seed it would drop their
seeds.
"""

SEEDS = Path(__file__).parent / "seeds"
FOUND = Path("build/fuzz")
"""Output of the search: inputs that reach new code, and those that fail (crash-…)."""


def main() -> None:
    """Fuzz the target named first; exits with 0 if nothing was found within -max_total_time."""
    name, *options = sys.argv[1:] or [""]
    if name not in TARGETS:
        sys.exit(f"usage: python -m trials.fuzz.target {'|'.join(TARGETS)} [libFuzzer options]")
    (found := FOUND / name).mkdir(parents=True, exist_ok=True)
    arguments = [sys.argv[0], *OPTIONS, *options, f"-artifact_prefix={FOUND}/{name}-", str(found), str(SEEDS / name)]
    atheris.Setup(arguments, TARGETS[name])
    atheris.Fuzz()


main()
