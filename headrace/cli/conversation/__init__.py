"""Questions of a person at the console, and what the person does while one is answered."""
