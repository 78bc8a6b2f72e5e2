"""What servers ask of us while they work on a call: the model (sampling), a person (elicitation), roots.

Nothing of it is granted but by mcp.json. In 2026-07-28 a server answers a call with what it asks, and the call is sent
again (rounds.py); before, it asks while the call runs, which then has a session of its own (live_calls.py).
"""
