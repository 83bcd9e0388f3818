"""Turns: claim a conversation, freeze its past, run the agent, settle; one that can write at most, fenced by epoch."""
