"""Facts about users: their changes, searches and RPCs."""
