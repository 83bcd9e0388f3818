"""The app of the run: agents that succeed, think, fail and keep silent, on two channels of different memory."""

import asyncio
import os
from typing import Final

from pydantic_ai import Agent as ModelAgent
from pydantic_ai.models.test import TestModel

from schemas.signing import SigningKey
from workers.agents.agent import Agent, Subscription
from workers.agents.scripted import scripted_helper
from workers.agents.tools import reply_tools
from workers.agents.turn import Turn
from workers.app import App
from workers.channels.keys import StaticKeys
from workers.channels.port import Capability
from workers.channels.webhook import WebhookChannel
from workers.memory.access import Access, Allow, Deny
from workers.memory.limits import Conversations

RECEIVER: Final = os.environ.get("DEPLOY_CHECK_RECEIVER", "http://127.0.0.1:9/")
KEY: Final = SigningKey.parse("check", "whsec_" + "ZGVwbG95Y2hl" * 3)
SHOP: Final = "shop"
PAGER: Final = "pager"
STRANGER: Final = "stranger"
_THINKS_SECONDS: Final = 0.05


async def desk(turn: Turn) -> None:
    """Answers after a while."""
    await turn.step("think", asyncio.sleep, _THINKS_SECONDS)
    await turn.reply(f"You said: {turn.event.text}")


async def pager(turn: Turn) -> None:
    """Fails for good or for now, as it is told; answers otherwise."""
    if "fail" in turn.event.text:
        raise ValueError("told to fail")
    if "later" in turn.event.text:
        raise ConnectionError("told to try later")
    await turn.reply("noted")


def mute() -> ModelAgent[Turn, str]:
    """A model that answers in text and never calls its reply tool."""
    return ModelAgent(TestModel(call_tools=[]), deps_type=Turn, name="mute", toolsets=[reply_tools()])


async def policy(access: Access) -> Allow | Deny:
    """Strangers are denied."""
    return Deny("a stranger") if access.principal.id == STRANGER else Allow()


app = App(
    "deploy-check",
    agents=[
        Agent("desk", runs=desk, conversation=True, subscriptions=[Subscription(SHOP)]),
        Agent(
            "helper",
            runs=scripted_helper(),
            conversation=True,
            subscriptions=[Subscription(SHOP, "question")],
        ),
        Agent("mute", runs=mute(), conversation=True, subscriptions=[Subscription(SHOP, "hush")]),
        Agent("pager", runs=pager, subscriptions=[Subscription(PAGER)], retries=2),
    ],
    channels=[
        WebhookChannel(SHOP, f"{RECEIVER}{SHOP}", StaticKeys((KEY,))),
        WebhookChannel(PAGER, f"{RECEIVER}{PAGER}", StaticKeys((KEY,)), capability=Capability.NONE),
    ],
    conversations=Conversations(authorize=policy),
)
