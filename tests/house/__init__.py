"""Tests of the house itself: its rules matrix, its broker, its database, its gates."""
