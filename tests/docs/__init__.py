"""The manual is what the code says: generated regions, completeness, references and examples."""
