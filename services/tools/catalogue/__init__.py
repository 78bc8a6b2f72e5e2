"""The tools in force come from here, and the files that define them are read here."""
