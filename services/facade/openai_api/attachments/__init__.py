"""Pictures, sounds and files in messages: uploads of the chat, to which the query refers."""
