"""Key files: their format, and how they are read again."""

from pathlib import Path

import pytest

from schemas.keys import KeyFile, KeyFileProblem, parse_keys, readable_by_others
from tests.schemas.samples import a_secret

ONE, TWO, PRIVATE = a_secret("one"), a_secret("two"), a_secret("three", "whsk_")


class Clock:
    """Monotonic seconds that a test moves."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Desk:
    """A key file with its clock and the problems it reported."""

    def __init__(self, path: Path) -> None:
        self.path, self.clock, self.problems = path, Clock(), list[KeyFileProblem]()
        self.edit(f"k1 {ONE}\n")
        self.file = KeyFile(path, "slack", self.clock, self.problems.append)

    def edit(self, text: str) -> None:
        beside = self.path.with_suffix(".new")
        beside.write_text(text)
        beside.replace(self.path)

    def ids(self, channel: str = "slack") -> list[str]:
        return [key.id for key in self.file.verify_keys(channel)]


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path / "keys")


def test_a_line_binds_a_key_to_its_channel_and_account() -> None:
    text = f"# comment\n\n  k1 {ONE}\r\nk2 {PRIVATE} channel=telegram%20x account=T1\n"

    first, second = parse_keys(Path("keys"), text, "slack")

    assert (first.verify.id, first.verify.channel, first.verify.account) == ("k1", "slack", None)
    assert (second.verify.channel, second.verify.account) == ("telegram x", "T1")
    assert second.signing is not None


@pytest.mark.parametrize(
    "line",
    [
        "k1",
        f"{ONE}",
        f"k1 {ONE} color=red",
        f"k1 {ONE} channel=",
        f"k1 {ONE} channel=a channel=b",
        "k1 whsec_AAAA",
        f"k0 {TWO}",
    ],
)
def test_a_bad_line_is_named_by_file_and_number_without_the_key(line: str) -> None:
    with pytest.raises(KeyFileProblem) as problem:
        parse_keys(Path("etc/keys"), f"k0 {ONE}\n{line}\n", "slack")
    assert str(problem.value).startswith("etc/keys:2: ")
    assert "whsec_AAAA" not in str(problem.value)
    assert ONE not in str(problem.value)


def test_a_key_without_any_channel_is_refused() -> None:
    with pytest.raises(KeyFileProblem):
        parse_keys(Path("keys"), f"k1 {ONE}")


@pytest.mark.rule("EN-2")
def test_a_changed_file_is_read_again_without_a_restart(desk: Desk) -> None:
    desk.edit(f"k2 {TWO}\nk3 {PRIVATE} channel=github\n")
    assert desk.ids() == ["k1"]

    desk.clock.now += 1

    assert desk.ids() == ["k2"]
    assert desk.ids("github") == ["k3"]
    assert [key.id for key in desk.file.signing_keys("github")] == ["k3"]


@pytest.mark.rule("EN-2")
def test_a_key_opens_no_other_channel(desk: Desk) -> None:
    assert desk.ids("github") == []


@pytest.mark.parametrize("broken", ["k2 whsec_AAAA\n", "", "\n\n"])
def test_a_broken_edit_keeps_the_last_good_keys_and_is_reported_once(desk: Desk, broken: str) -> None:
    desk.edit(broken)

    for _ in range(3):
        desk.clock.now += 1
        assert desk.ids() == ["k1"]

    assert len(desk.problems) == 1


def test_a_vanished_file_keeps_its_keys_until_it_comes_back(desk: Desk) -> None:
    desk.path.unlink()
    desk.clock.now += 1
    assert desk.ids() == ["k1"]
    assert len(desk.problems) == 1

    desk.edit(f"k2 {TWO}")
    desk.clock.now += 1

    assert desk.ids() == ["k2"]


def test_a_file_with_only_a_comment_revokes_every_key(desk: Desk) -> None:
    desk.edit("# revoked after the incident\n")
    desk.clock.now += 1

    assert desk.ids() == []
    assert desk.problems == []


def test_a_missing_file_at_start_is_an_operators_matter(tmp_path: Path) -> None:
    with pytest.raises(KeyFileProblem):
        KeyFile(tmp_path / "none", "slack")


def test_a_file_that_anyone_may_read_is_noticed(desk: Desk) -> None:
    desk.path.chmod(0o640)
    assert not readable_by_others(desk.path)
    desk.path.chmod(0o644)
    assert readable_by_others(desk.path)
