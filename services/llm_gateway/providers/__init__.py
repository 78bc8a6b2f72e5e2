"""The provider file, the providers in force, and their credentials."""
