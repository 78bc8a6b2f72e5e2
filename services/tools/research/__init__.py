"""Deep search: a question is split, searched in parallel, judged, and answered from what was found."""
