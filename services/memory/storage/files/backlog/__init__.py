"""The index is made while the folder is served."""
