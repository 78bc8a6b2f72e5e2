"""Counts tokens of texts, images and requests, and knows models by their names."""
