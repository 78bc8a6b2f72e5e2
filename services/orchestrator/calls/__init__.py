"""Execution of tool calls, one file for each kind of tool."""
