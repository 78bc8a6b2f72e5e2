"""Documents of every kind, made from the Markdown that a model writes."""
