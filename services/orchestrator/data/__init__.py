"""Users' data: exports, and erasure from all services."""
