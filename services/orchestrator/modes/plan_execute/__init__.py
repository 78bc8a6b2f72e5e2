"""The mode PLAN_EXECUTE."""
