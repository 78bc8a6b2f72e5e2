"""Images, audio and files in messages: stored as uploads of the chat and referred to by the query."""
