"""From what a server sent to text that a model can read. Hostile bytes are parsed in a process that can be killed."""
