"""What a tool is made of: its definition, its context, its arguments, and the ways to run a command or ask a model."""
