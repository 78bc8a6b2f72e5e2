"""What takes longer than the check: `python -m trials --list`."""
