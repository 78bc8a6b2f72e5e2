"""Third-party and hand-written programs for comparison; none of them is a dependency."""
