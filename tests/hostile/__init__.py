"""The cost of unauthenticated peers: each class of attack against a real service that also serves an honest stream."""
