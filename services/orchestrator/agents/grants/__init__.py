"""What the operator lets tenants' own agents reach: tenant-agents.yaml."""
