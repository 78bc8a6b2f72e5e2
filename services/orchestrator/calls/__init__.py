"""Tool calls of an answer: one file for each kind of tool."""
