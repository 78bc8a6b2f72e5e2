"""Decides which hosts may be reached, and reaches no others."""
