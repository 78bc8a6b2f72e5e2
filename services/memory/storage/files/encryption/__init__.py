"""Data keys, and the encryption of what is stored, in a folder."""
