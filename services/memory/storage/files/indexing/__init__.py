"""The index of a folder of logs."""
