"""What mode REMOTE works with: an agent elsewhere, whose task is followed so that a takeover finds it again."""
