"""Restores a run from its log when this process takes it over."""
