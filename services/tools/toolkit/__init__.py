"""Has the parts of a tool."""
