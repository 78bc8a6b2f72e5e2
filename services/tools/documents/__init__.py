"""Creates documents from Markdown."""
