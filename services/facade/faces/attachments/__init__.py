"""Pictures, sounds and files that come with a message: uploads of its chat, to which its query refers."""
