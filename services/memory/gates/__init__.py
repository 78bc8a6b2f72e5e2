"""Gates and grants: what waits for people, and what they have approved ahead."""
