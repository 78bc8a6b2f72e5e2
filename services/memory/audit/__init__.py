"""Who has done what, for those who audit."""
