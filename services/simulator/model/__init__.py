"""The simulated model's built-in behaviour, for requests that match no script rule."""
