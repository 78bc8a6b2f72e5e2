"""The modes: how a run comes to its answer."""
