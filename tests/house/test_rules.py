"""The matrix of rules says what the tests show, no more and no less."""

import re
from collections import defaultdict
from pathlib import Path

import pytest

from tests.support.rules import later_in, rules_in, rules_of

PAGE = """# EN: a page

- EN-1 The first rule; see EN-3 for its reason.
- EN-2 The second. EN-3 The third, in one item with it (as EN-1. EN-1 says).
- EN-4 The last.
"""


@pytest.fixture
def project(pytester: pytest.Pytester) -> pytest.Pytester:
    """A project of four rules, of which EN-4 is not yet due."""
    pytester.mkdir("docs")
    (pytester.path / "docs" / "engine.md").write_text(PAGE)
    (pytester.path / "later.txt").write_text("# not yet\nEN-4 waits for the rest\n")
    pytester.makeini("[pytest]\nrules_folder = docs\nrules_later = later.txt\n")
    return pytester


def run(project: pytest.Pytester, tests: str, mode: str) -> pytest.RunResult:
    project.makepyfile(tests)
    plugins = ("-p", "tests.support.rules", "-p", "no:cacheprovider", "-p", "no:asyncio")
    return project.runpytest_inprocess(*plugins, f"--rules={mode}")


def test_a_rule_begins_an_item_or_a_sentence_of_one_and_is_not_a_reference() -> None:
    assert rules_in(PAGE) == ["EN-1", "EN-2", "EN-3", "EN-4"]
    assert rules_in("- CM-22 CM-23 Healing: see EN-11.\n") == ["CM-22", "CM-23"]
    assert rules_in("- CC-3 Same thread; CC-4 two asks. CM-31 holds\n") == ["CC-3", "CC-4"]
    assert rules_in("EN-1 is spoken of here\n  - EN-2 is not an item of the page\n") == []


def test_the_pages_of_this_project_number_their_rules_without_a_gap(pytestconfig: pytest.Config) -> None:
    numbers: dict[str, list[int]] = defaultdict(list)
    for rule in rules_of(pytestconfig.rootpath / "docs" / "requirements"):
        prefix, number = rule.split("-")
        numbers[prefix].append(int(number))

    assert set(numbers) == {"CC", "CH", "CM", "EN", "LM", "OP"}
    assert {prefix: sorted(found) for prefix, found in numbers.items()} == {
        prefix: list(range(1, len(found) + 1)) for prefix, found in numbers.items()
    }


def test_the_pages_of_this_project_link_to_nothing_outside_it(pytestconfig: pytest.Config) -> None:
    folder = pytestconfig.rootpath / "docs" / "requirements"
    pages = {page.name: page.read_text("utf-8") for page in folder.glob("*.md")}

    assert [name for name, text in pages.items() if re.search(r"\.\./", text)] == []


def test_the_matrix_has_one_line_a_rule_in_the_order_of_the_page(project: pytest.Pytester) -> None:
    result = run(
        project,
        """
        import pytest

        @pytest.mark.rule("EN-1", "EN-3")
        @pytest.mark.parametrize("n", [1, 2])
        def test_shows(n): pass

        @pytest.mark.rule("EN-2")
        def test_breaks(): assert False
        """,
        "show",
    )

    result.stdout.fnmatch_lines(
        [
            "EN-1 passed 2 tests",
            "EN-2 failed 1 of 1 tests",
            "EN-3 passed 2 tests",
            "EN-4 later (waits for the rest)",
            "rules: 2 passed, 1 due and not passed, 1 later",
            "*1 failed, 2 passed*",
        ],
        consecutive=False,
    )


def test_a_skipped_or_expectedly_failing_test_shows_nothing(project: pytest.Pytester) -> None:
    result = run(
        project,
        """
        import pytest

        @pytest.mark.rule("EN-1")
        def test_skips(): pytest.skip("no reason")

        @pytest.mark.rule("EN-2")
        @pytest.mark.xfail
        def test_may_fail(): assert False

        @pytest.mark.rule("EN-3")
        @pytest.mark.xfail
        def test_may_fail_and_passes(): pass
        """,
        "show",
    )

    result.stdout.fnmatch_lines(["EN-1 missing*", "EN-2 missing*", "EN-3 missing*"])


def test_a_test_that_fails_only_while_tearing_down_fails_its_rule(project: pytest.Pytester) -> None:
    result = run(
        project,
        """
        import pytest

        @pytest.fixture
        def leaking():
            yield
            assert False

        @pytest.mark.rule("EN-1")
        def test_leaks(leaking): pass
        """,
        "show",
    )

    result.stdout.fnmatch_lines(["EN-1 failed*"])


def test_the_gate_fails_a_green_run_that_leaves_a_due_rule_unshown(project: pytest.Pytester) -> None:
    some = "import pytest\n\n@pytest.mark.rule('EN-1')\ndef test_shows(): pass\n"

    assert run(project, some, "show").ret == pytest.ExitCode.OK
    assert run(project, some, "gate").ret == pytest.ExitCode.TESTS_FAILED


def test_the_gate_passes_when_every_due_rule_is_shown(project: pytest.Pytester) -> None:
    every = "import pytest\n\n@pytest.mark.rule('EN-1', 'EN-2', 'EN-3')\ndef test_shows(): pass\n"

    assert run(project, every, "gate").ret == pytest.ExitCode.OK


@pytest.mark.parametrize(
    ("marks", "complaint"),
    [
        ("'EN-1', 'EN-2', 'EN-3', 'EN-4'", "*names 4 rules, at most 3*"),
        ("'EN-99'", "*names the unknown rule EN-99*"),
    ],
)
def test_too_many_or_unknown_rules_stop_the_collection(
    project: pytest.Pytester, marks: str, complaint: str
) -> None:
    result = run(project, f"import pytest\n\n@pytest.mark.rule({marks})\ndef test_it(): pass\n", "off")

    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([complaint])


def test_rules_not_yet_due_are_named_one_by_one_or_in_a_row_with_a_reason() -> None:
    known = ["EN-1", "EN-2", "EN-3"]

    assert later_in("EN-1..EN-2 so\nEN-3 thus\n", known) == {"EN-1": "so", "EN-2": "so", "EN-3": "thus"}
    with pytest.raises(pytest.UsageError, match="line 1"):
        later_in("EN-1\n", known)
    with pytest.raises(pytest.UsageError, match="EN-4"):
        later_in("EN-3..EN-4 so\n", known)


def test_what_is_not_yet_due_here_stands_in_its_file(pytestconfig: pytest.Config) -> None:
    rules = rules_of(pytestconfig.rootpath / "docs" / "requirements")
    later = later_in(Path(pytestconfig.rootpath / "tests" / "rules_later.txt").read_text("utf-8"), rules)

    assert "EN-7" not in later
    assert all(len(reason.split()) > 3 for reason in later.values())
