"""The web console: one page of hand-written ES modules, served as they are; there is no build step."""
