"""Admission: whether a query may begin a run here, and which agent takes it."""
