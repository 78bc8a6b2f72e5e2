"""Rules of approvals.yaml, and their verdict on a call."""
