"""Honest load: other people's gRPC clients read streams of a server of ours for minutes, and no stream may break."""
