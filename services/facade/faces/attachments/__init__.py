"""Images, audio and files sent with a message: stored as uploads of its chat and referred to by its query."""
