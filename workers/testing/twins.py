"""The app under test, with a lab channel of the same name in the place of each channel that reaches a platform."""

from __future__ import annotations

from typing import Final

from schemas.signing import SigningKey
from workers.app import App
from workers.channels.keys import StaticKeys
from workers.channels.lab import LabChannel
from workers.channels.port import Channel

_KEYS: Final = StaticKeys((SigningKey.parse("test", "whsec_dGhpcyBrZXkgcHJvdmVzIHRlc3RzIG9ubHk="),))


def with_lab_channels(app: App) -> tuple[App, dict[str, LabChannel]]:
    """The app to run, and its lab channels by name; a lab channel of the app's own is kept."""
    labs = {name: _twin(channel) for name, channel in app.channels.items()}
    twin = App(
        app.name,
        agents=list(app.agents.values()),
        channels=list(labs.values()),
        conversations=app.conversations,
    )
    return twin, labs


def _twin(channel: Channel) -> LabChannel:
    if isinstance(channel, LabChannel):
        channel.keys = channel.keys or _KEYS
        return channel
    lab = LabChannel(
        channel.name,
        channel.capability,
        transport_timeout=channel.transport_timeout,
        size_limit=channel.size_limit,
        size_unit=channel.size_unit,
        keys=_KEYS,
    )
    lab.window = channel.window
    return lab
