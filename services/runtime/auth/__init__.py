"""Authentication of calling services and clients."""
