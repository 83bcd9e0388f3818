"""A batch of tool calls cut off at any write: what ran is not run again, and every call has its result."""

import pytest
from pydantic_ai import Agent as ModelAgent

from tests.agents.doubles import Crashed, JournalDouble, StrictModel, a_turn, calls, tool_results
from workers.agents.agent import Agent
from workers.agents.runner import run_agent
from workers.agents.turn import Turn
from workers.memory.snapshot import Exchange, Snapshot

BATCH = calls(*(("charge", {"number": number}) for number in "123"))
PAST = Snapshot(history=(Exchange("user", "before"), Exchange("assistant", "yes")), omitted_items=1)


def charging(model: StrictModel, charged: list[str]) -> Agent:
    """An agent whose tool `charge` has an effect outside."""
    runs = ModelAgent(model.model, deps_type=Turn)

    @runs.tool_plain(sequential=True)
    async def charge(number: str) -> str:
        charged.append(number)
        return f"charged {number}"

    return Agent("helper", runs=runs, conversation=True)


@pytest.mark.parametrize("write", range(1, 8))
@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_resumed_batch_runs_nothing_twice_and_a_strict_provider_takes_its_history(
    write: int, when: str
) -> None:
    model, journal = StrictModel(BATCH), JournalDouble()
    charged: list[str] = []
    agent = charging(model, charged)
    setattr(journal, f"crash_{when}", write)
    with pytest.raises(Crashed):
        await run_agent(agent, a_turn(agent, journal, snapshot=PAST))
    model.answers[:] = [] if journal.recorded else [BATCH]

    await run_agent(agent, a_turn(agent, journal.revived(), snapshot=PAST))

    assert len(charged) == len(set(charged))
    results = [str(result.content) for result in tool_results(model.seen[-1])]
    for number, result in zip("123", results, strict=True):
        assert result == f"charged {number}" or "outcome unknown" in result
        assert result != f"charged {number}" or number in charged, "no success is invented"
    await run_agent(agent, a_turn(agent, JournalDouble(), snapshot=PAST))
    assert tool_results(model.seen[-1]) == [], "a later turn is shown no call that wants a result"
