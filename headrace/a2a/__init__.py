"""Generated from protos/headrace/a2a by `make gen`; never edited. The wire of the A2A protocol, which is others'."""
