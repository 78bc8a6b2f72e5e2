"""Answers a question from many searches."""
