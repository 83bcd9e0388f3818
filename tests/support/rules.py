"""Every rule of docs/requirements is shown by tests, and the matrix says which ones are not.

A pytest plugin. `@pytest.mark.rule("EN-7")` on a test says that the test shows the rule; at most three rules
a test, and only rules that exist. `--rules show` prints one line a rule after the run, `--rules gate` also
fails the run when a due rule is not passed. A skipped test shows nothing. Rules not yet due stand, with a
reason, in the file of the ini option `rules_later`.
"""

import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

AT_MOST = 3
PROPERTY = "rules"

_ITEM = re.compile(r"^- (?P<first>(?P<prefix>[A-Z]{2})-\d+)\b(?P<rest>.*)$")
_LATER = re.compile(
    r"^(?P<prefix>[A-Z]{2})-(?P<first>\d+)(?:\.\.(?P=prefix)-(?P<last>\d+))?\s+(?P<reason>\S.*)$"
)


def rules_in(text: str) -> list[str]:
    """The ids of the rules that begin in a page of requirements, in its order.

    A rule begins a list item, or a sentence inside one (`- CM-11 ... too. CM-12 Another ...`, or in a row,
    `- CM-22 CM-23 ...`); an id in mid-sentence, in brackets, or with another prefix begins none.
    """
    found: list[str] = []
    for line in text.splitlines():
        if item := _ITEM.match(line):
            found.append(item["first"])
            begins = re.compile(rf"(?:(?<=[.;:] )|(?<=^ )){item['prefix']}-\d+(?= [\w`])")
            rest = item["rest"]
            found += [begun[0] for begun in begins.finditer(rest) if not _in_brackets(rest[: begun.start()])]
    return found


def _in_brackets(before: str) -> bool:
    return before.count("(") > before.count(")")


def rules_of(folder: Path) -> list[str]:
    """All rule ids of the pages in `folder`, page by page in name order; a repeated id is an error."""
    found = [rule for page in sorted(folder.glob("*.md")) for rule in rules_in(page.read_text("utf-8"))]
    if twice := sorted({rule for rule in found if found.count(rule) > 1}):
        raise pytest.UsageError(f"rules that stand twice in {folder}: {', '.join(twice)}")
    return found


def later_in(text: str, known: Iterable[str]) -> dict[str, str]:
    """Rule id to reason, from lines `EN-25 reason` and `CM-1..CM-82 reason`; the ids must be `known`."""
    later: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip() or line.startswith("#"):
            continue
        if not (entry := _LATER.match(line)):
            raise pytest.UsageError(
                f"rules not yet due, line {number}: no `RULE reason` or `FIRST..LAST reason`"
            )
        numbers = range(int(entry["first"]), int(entry["last"] or entry["first"]) + 1)
        later |= {f"{entry['prefix']}-{n}": entry["reason"] for n in numbers}
    if unknown := sorted(set(later) - set(known)):
        raise pytest.UsageError(f"rules not yet due that no page of requirements has: {', '.join(unknown)}")
    return later


@dataclass(slots=True)
class Shown:
    """What the tests of one rule came to."""

    passed: int = 0
    failed: int = 0
    skipped: int = 0


@dataclass(slots=True)
class Matrix:
    """Collects outcomes by rule and says, rule by rule, how they stand."""

    rules: list[str]
    later: dict[str, str]
    shown: dict[str, Shown] = field(default_factory=lambda: defaultdict(Shown))

    def state_of(self, rule: str) -> str:
        """`failed`, `passed`, `later` or `missing`."""
        shown = self.shown[rule]
        if shown.failed:
            return "failed"
        if shown.passed:
            return "passed"
        return "later" if rule in self.later else "missing"

    def line_of(self, rule: str) -> str:
        """`EN-7 passed 3 tests`."""
        shown, state = self.shown[rule], self.state_of(rule)
        match state:
            case "passed":
                detail = f" {shown.passed} test{'s' * (shown.passed != 1)}"
            case "failed":
                detail = f" {shown.failed} of {shown.passed + shown.failed} tests"
            case "later":
                detail = f" ({self.later[rule]})"
            case _:
                detail = f" ({shown.skipped} skipped)" if shown.skipped else ""
        return f"{rule} {state}{detail}"

    def gaps(self) -> list[str]:
        """The due rules that are not passed."""
        return [rule for rule in self.rules if self.state_of(rule) in ("failed", "missing")]


class RulesPlugin:
    """Reads the marks at collection, the outcomes as they come, and prints the matrix at the end."""

    def __init__(self, matrix: Matrix, mode: str) -> None:
        self.matrix = matrix
        self.mode = mode

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        faults: list[str] = []
        for item in items:
            named = {str(rule) for mark in item.iter_markers("rule") for rule in mark.args}
            if len(named) > AT_MOST:
                faults.append(f"{item.nodeid} names {len(named)} rules, at most {AT_MOST}")
            faults += [
                f"{item.nodeid} names the unknown rule {rule}"
                for rule in sorted(named - {*self.matrix.rules})
            ]
            # On the report, which also reaches the process that prints, when several run the tests.
            item.user_properties.append((PROPERTY, sorted(named)))
        if faults:
            raise pytest.UsageError("\n".join(faults))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        rules = next((value for name, value in report.user_properties if name == PROPERTY), ())
        assert isinstance(rules, list | tuple)
        for rule in rules:
            shown = self.matrix.shown[rule]
            if report.failed:
                shown.failed += 1
            elif report.skipped:
                shown.skipped += 1
            elif report.when == "call" and not hasattr(report, "wasxfail"):
                shown.passed += 1

    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        if hasattr(session.config, "workerinput"):
            return
        if self.mode == "gate" and exitstatus == pytest.ExitCode.OK and self.matrix.gaps():
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self.mode == "off":
            return
        terminalreporter.section("rules")
        for rule in self.matrix.rules:
            terminalreporter.line(self.matrix.line_of(rule))
        gaps = self.matrix.gaps()
        later = sum(self.matrix.state_of(rule) == "later" for rule in self.matrix.rules)
        passed = len(self.matrix.rules) - len(gaps) - later
        terminalreporter.line(f"rules: {passed} passed, {len(gaps)} due and not passed, {later} later")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--rules",
        choices=("off", "show", "gate"),
        default="off",
        help="print the matrix of rules after the run; `gate` also fails it when a due rule is not passed",
    )
    parser.addini(
        "rules_folder", "folder of the pages that hold the rules", type="string", default="docs/requirements"
    )
    parser.addini(
        "rules_later",
        "file of the rules that are not yet due",
        type="string",
        default="tests/rules_later.txt",
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "rule(*ids): the rules of docs/requirements that this test shows, at most three"
    )
    rules = rules_of(config.rootpath / config.getini("rules_folder"))
    later_file = config.rootpath / config.getini("rules_later")
    later = later_in(later_file.read_text("utf-8"), rules) if later_file.exists() else {}
    config.pluginmanager.register(
        RulesPlugin(Matrix(rules, later), config.getoption("--rules")), "rules-matrix"
    )
