"""What was spent, in the index: rows from the log, and the queries about them, for both engines."""
