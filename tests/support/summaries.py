"""Answers of scripted models that are asked for a summary."""

SECTIONS = (
    *("Primary request and intent", "Key concepts", "Files and code", "Errors and fixes", "Problem solving"),
    *("All user messages", "Pending tasks", "Current work", "Next step"),
)


def write_summary(text: str) -> str:
    """A whole answer, whose first section says `text`."""
    rest = "\n".join(f"{number}. {name}: none" for number, name in enumerate(SECTIONS[1:], 2))
    return f"<analysis>hm</analysis>\n<summary>\n1. {SECTIONS[0]}: {text}\n{rest}\n</summary>"
