"""Where chats are kept. `engine` names what a store does; `files` and `postgres` are the two that do it."""
