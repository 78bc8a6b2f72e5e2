"""What becomes of the calls of an answer: one file for each kind of tool, and what stands before and behind them."""
