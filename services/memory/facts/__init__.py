"""Facts about users: what may change in them, which of them a query finds, and their RPCs."""
