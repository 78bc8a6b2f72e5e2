"""Generated from protos/headrace/v1 by `make proto`; never edited."""
