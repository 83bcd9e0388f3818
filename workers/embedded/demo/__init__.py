"""`parley demo`: one conversation on real parts, with a killed worker and a dropped connection, and what held."""

from workers.embedded.demo.story import run_demo

__all__ = ["run_demo"]
