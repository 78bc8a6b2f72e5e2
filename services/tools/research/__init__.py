"""Splits a question, searches in parallel, judges the findings, and answers from them."""
