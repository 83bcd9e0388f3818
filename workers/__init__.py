"""Parley: AI agents behind chat channels, one turn a conversation at a time."""
