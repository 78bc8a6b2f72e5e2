"""Counting tokens: what texts, images and requests cost, and what is known of models by their names."""
