"""Channels: how text leaves for a platform, how its requests become events, and what each can promise."""
