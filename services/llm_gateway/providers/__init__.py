"""The provider file: its format, the providers in force, and their credentials."""
