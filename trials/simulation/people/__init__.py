"""The users of a simulated world's services, and their observations."""
