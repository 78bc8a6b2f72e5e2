"""What was spent, by chat and day."""
