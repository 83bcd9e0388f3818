"""Conversation memory: what an opted-in agent is shown of the same chat, and the notes it was asked to keep."""
