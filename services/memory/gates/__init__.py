"""Gates and grants: requests that wait for people, and their approvals in advance."""
