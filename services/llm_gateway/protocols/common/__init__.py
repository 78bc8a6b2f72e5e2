"""Parts that the protocols share: the reader of an answer, the encoding of deltas, state that a provider wants back."""
