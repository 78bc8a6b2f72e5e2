"""The rules of approvals.yaml give a verdict on each call."""
