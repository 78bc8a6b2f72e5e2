"""AG-UI 1.0: published agents for the frontends that speak it."""
