"""Refusals of providers, made into the errors of headrace.errors."""
