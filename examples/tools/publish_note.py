"""Add a note to outputs/notes.md: arguments as JSON on standard input. Run twice it would be there twice: `once`."""

import json
import sys

PATH = "outputs/notes.md"

call = json.load(sys.stdin)
with open(PATH, "a", encoding="utf-8") as notes:
    notes.write(f"## {call['title']}\n\n{call['text']}\n\n")
sys.stdout.write(f"added to {PATH}\n")
