"""What each class of HTTP attack costs on this machine: `python -m tests.hostile.http.measure [SECONDS [CLASS…]]`."""

from __future__ import annotations

from tests.hostile.measure import print_costs
from trials.hostile.http.attacks import ATTACKS, SLOW
from trials.hostile.http.trial import FACADES, facade, try_attack

if __name__ == "__main__":
    print_costs(facade, FACADES, try_attack, [*ATTACKS, *SLOW])
