"""Frames with which our server must agree with h2 and libnghttp2."""
