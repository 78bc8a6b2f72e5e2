"""A person's questions at the console, and acts while one is answered."""
