"""Realistic load: third-party gRPC clients read streams of our server for minutes, and no stream may break."""
