"""The test kit for agent authors: your app on the real engine, with nothing to install and nothing to wait for."""

from workers.testing.app import TestApp
from workers.testing.waiting import NotInTime

__all__ = ["NotInTime", "TestApp"]
