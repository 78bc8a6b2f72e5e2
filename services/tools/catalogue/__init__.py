"""The tools in force, and the files that define them."""
