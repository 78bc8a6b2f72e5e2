"""Makes documents from Markdown."""
