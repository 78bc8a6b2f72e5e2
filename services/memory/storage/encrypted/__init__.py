"""What both engines do where stored texts are encrypted."""
