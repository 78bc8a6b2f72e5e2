"""The parts of mode REMOTE: an agent elsewhere, and a log of its task so that a takeover finds it again."""
