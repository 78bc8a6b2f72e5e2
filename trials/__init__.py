"""What takes longer than a check, or judges from outside: `python -m trials --list`.

A trial is a module here, or a folder with a `__main__.py`, that has `main(arguments: list[str]) -> int`: 0 when all
held, 1 when something broke; it raises `NotTried` where it cannot say. The first line of its docstring is its line in
the list. One that belongs to `make nightly` says with which arguments: `NIGHTLY = ["1-2000"]`. It installs what it
needs itself, in versions that are pinned, below build/.
"""
