"""Answers of scripted models to requests for a summary."""

SECTIONS = (
    *("Primary request and intent", "Key concepts", "Files and code", "Errors and fixes", "Problem solving"),
    *("All user messages", "Pending tasks", "Current work", "Next step"),
)


def write_summary(text: str) -> str:
    """Return a complete answer whose first section has `text`."""
    other_sections = "\n".join(f"{number}. {name}: none" for number, name in enumerate(SECTIONS[1:], 2))
    return f"<analysis>hm</analysis>\n<summary>\n1. {SECTIONS[0]}: {text}\n{other_sections}\n</summary>"
