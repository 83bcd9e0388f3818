"""Roles: how the rooms become the running parts of one worker process."""
