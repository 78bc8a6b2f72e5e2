"""Long-running trials and trials with external judges: `python -m trials --list`.

A trial is a module here, or a folder with a `__main__.py`, that has `main(arguments: list[str]) -> int`. It
returns 0 if everything held and 1 if something broke, and raises `NotTried` if it could not be tried. The first
line of its docstring is its line in the list. A trial of `make nightly` names its arguments: `NIGHTLY =
["30"]`. It installs its own requirements, in pinned versions, below build/.
"""
