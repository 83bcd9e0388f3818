"""The lab channel keeps the contract with each of its capabilities."""

from datetime import timedelta

import pytest

from tests.channels.contract import ChannelContract
from workers.channels.lab import Fault, LabChannel
from workers.channels.port import Capability

_FAULTS = {
    "refuse": Fault("refuse"),
    "rate_limit": Fault("rate_limit", retry_after=timedelta(seconds=7)),
    "server_error": Fault("server_error"),
    "stall": Fault("stall"),
    "drop": Fault("drop"),
    "store_then_drop": Fault("drop", accepts=True),
}


class LabRig:
    def __init__(self, channel: LabChannel) -> None:
        self.channel = channel

    def misbehave(self, how: str) -> None:
        self.channel.fail_next(_FAULTS[how])

    def held(self) -> list[str]:
        return self.channel.received


class TestLab(ChannelContract):
    @pytest.fixture(params=list(Capability))
    def rig(self, request: pytest.FixtureRequest) -> LabRig:
        return LabRig(LabChannel(capability=request.param))
