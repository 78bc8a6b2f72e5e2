"""Makes documents of every kind from the Markdown that a model writes."""
