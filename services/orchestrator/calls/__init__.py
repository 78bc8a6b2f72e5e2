"""Tool calls of an answer: one file for each kind of tool, with the gate before it and the results after it."""
