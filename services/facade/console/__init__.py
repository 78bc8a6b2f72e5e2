"""The web console: one page of hand-written ES modules, served without a build step."""
