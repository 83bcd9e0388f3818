"""The examples that tell the stories of conversation memory, as an author would run their tests."""

import pytest

from examples import test_rename, test_two_messages

test_renamed = pytest.mark.rule("CM-10", "CM-12", "CM-15")(
    test_rename.test_a_renamed_agent_with_a_stable_key_keeps_what_it_knows
)
test_two = pytest.mark.rule("CM-34", "CM-40", "CM-68")(
    test_two_messages.test_a_new_process_answers_from_what_the_first_one_kept
)
test_elsewhere = pytest.mark.rule("CM-11")(test_two_messages.test_another_chat_knows_nothing_of_it)
