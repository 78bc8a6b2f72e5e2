"""Commands of those who operate, a file each."""
