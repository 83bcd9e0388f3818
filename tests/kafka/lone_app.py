"""An app whose one agent is never run here: intake admits, and nothing else is measured."""

from tests.support.events import KEYS, an_agent
from workers.app import App
from workers.channels.lab import LabChannel


def a_lone_app() -> App:
    """One unbound agent on the `lab` channel."""
    return App("lone", agents=[an_agent("lone")], channels=[LabChannel(keys=KEYS)])
