"""Erasures, holds, and what erasing needs of a store."""
