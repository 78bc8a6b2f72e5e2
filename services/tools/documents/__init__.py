"""Documents from Markdown: the model writes text alone, and every kind of file is made from it here."""
