"""The simulated model's own behaviour: what it answers when no script rule fits."""
