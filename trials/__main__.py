"""`python -m trials NAME [ARGUMENTS…]` runs a trial; `--list` lists the trials."""

import sys
from importlib import import_module

from trials.support.catalogue import find_trials
from trials.support.commands import NOT_TRIED, NotTried


def main(arguments: list[str]) -> int:
    trials = find_trials()
    match arguments:
        case ["--list"]:
            for trial in trials.values():
                print(f"{trial.name:16}{trial.line}")
            return 0
        case [name, *rest] if name in trials:
            try:
                return import_module(trials[name].module).main(rest)
            except NotTried as reason:
                print(f"NOT TRIED: {reason}", flush=True)
                return NOT_TRIED
        case _:
            print(f"usage: python -m trials --list | {' | '.join(trials)} [ARGUMENTS]", file=sys.stderr)
            return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
