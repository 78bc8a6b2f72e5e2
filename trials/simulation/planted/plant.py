"""Plants a bug in a world that is about to begin."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from trials.simulation.world.world import World


def plant(world: World, bug: str) -> None:
    """Plant the bug in the world; an empty name plants none."""
    world.bug = bug
    world.storage.faults.skips_syncs = bug == "no sync"
    world.storage.faults.skips_folders = bug == "no folder sync"
    world.storage.faults.hides_errors = bug == "hidden disk error"
    world.receiver.hides_failures = bug == "untold event"
    world.outside.asks_nobody = bug == "unasked call"
    world.outside.forgets_effects = bug == "forgotten effects"
