"""Generated from protos/headrace/a2a by `make proto`; never edited. The wire of the A2A protocol, which is others'."""
