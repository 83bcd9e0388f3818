"""Apps that worker processes of these tests run; `tests.support.crashing` starts them, and kills them at a point."""

from tests.support.crashing import allow
from tests.support.events import KEYS, an_agent
from workers.agents.turn import Turn
from workers.app import App
from workers.channels.lab import LabChannel
from workers.memory.limits import Conversations


async def hand_off(turn: Turn) -> None:
    """Hands the event to `back`, keeps a note, and answers."""
    await turn.handoff("back")
    await turn.set_note("handed", "over")
    await turn.reply("handed off")


async def take_over(turn: Turn) -> None:
    """Answers what was handed off."""
    await turn.reply(f"back office: {turn.event.text}")


def handing_off() -> App:
    """`front` hands every message to `back`, which listens to nothing."""
    return App(
        "handing off",
        agents=[
            an_agent("front", runs=hand_off, conversation="helper"),
            an_agent("back", runs=take_over, conversation="helper", subscriptions=[]),
        ],
        channels=[LabChannel(keys=KEYS)],
        conversations=Conversations(allow),
    )
