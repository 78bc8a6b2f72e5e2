from __future__ import annotations


class ToolFailed(Exception):
    """The tool cannot do what was asked; the text tells the model why, in a result with `ok` false."""
