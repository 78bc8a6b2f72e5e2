"""The manual matches the code: generated regions, completeness, references and examples."""
