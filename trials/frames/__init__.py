"""Frames of which our server must take what h2 and libnghttp2 take."""
