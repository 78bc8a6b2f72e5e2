"""Writing a reply to its client: pace, silence, and the ways to break off."""
