"""What each class of HTTP attack costs on this machine: `python -m tests.hostile.http.measure [SECONDS [CLASS…]]`."""

from __future__ import annotations

from tests.hostile.http.attacks import ATTACKS, SLOW
from tests.hostile.http.trial import FACADES, facade, try_attack
from tests.hostile.measure import print_costs

if __name__ == "__main__":
    print_costs(facade, FACADES, try_attack, [*ATTACKS, *SLOW])
