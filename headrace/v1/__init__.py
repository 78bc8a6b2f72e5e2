"""Generated from protos/headrace/v1 by `make gen`; never edited."""
