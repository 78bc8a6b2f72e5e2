"""A model of PostgreSQL behind asyncpg: the store's own SQL, translated for SQLite, on servers that crash."""
