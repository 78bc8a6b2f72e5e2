"""Outside clients before a running suite, whose provider is scripted."""
