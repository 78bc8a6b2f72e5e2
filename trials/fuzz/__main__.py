"""Search for bytes that break readers of streams, logs, agent files and frames, a route, or an RPC: [TARGET…]."""

import argparse

from trials.support.commands import install, run_python, worst

NIGHTLY = ["--bad-requests", "500"]

TARGETS = ("sse", "log_lines", "triple_quotes", "templates", "http2")
BESIDE = ("routes", "rpcs", "frames")
"""Targets that are tested through a running suite."""


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m trials fuzz", description=__doc__)
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=", ".join((*TARGETS, *BESIDE)))
    parser.add_argument("--seconds", type=int, default=60, help="for each")
    parser.add_argument("--bad-requests", type=int, default=10000, help="for each RPC")
    parser.add_argument("--frames", type=int, default=50000, help="cases that two readers of HTTP/2 are held to")
    given = parser.parse_args(arguments)
    install("-e", ".[fuzz]")
    frames = {"FRAME_CASES": str(given.frames)}
    phases = ("--http-examples", str(given.seconds), "--http-phases", "coverage,fuzzing")
    searches = {
        **{name: (("trials.fuzz.target", name, f"-max_total_time={given.seconds}"), {}) for name in TARGETS},
        "routes": (("pytest", "-q", "tests/e2e/test_openapi.py", *phases), {}),
        "rpcs": (("pytest", "-q", "tests/tenants/test_bad_requests.py", "--bad-requests", str(given.bad_requests)), {}),
        "frames": (("pytest", "-q", "tests/hostile/test_frame_oracle.py"), frames),
    }
    chosen = (searches[name] for name in given.targets or searches)
    return worst(run_python(*command, **settings) for command, settings in chosen)
