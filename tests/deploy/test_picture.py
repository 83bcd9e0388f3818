"""The picture of a dashboard is well-formed, shows each panel, and says where nothing was answered."""

from xml.etree import ElementTree

from deploy.checks.dashboards import read_dashboards
from deploy.checks.live.picture import draw
from deploy.checks.live.prometheus import Series
from deploy.checks.live.run import Findings


def test_every_panel_is_drawn_from_its_answers_and_says_when_it_has_none() -> None:
    board = next(each for each in read_dashboards() if each.name == "delivery")
    graph = next(panel for panel in board.panels if panel.kind == "timeseries")
    expression, _ = graph.queries[0]
    points = tuple((float(second), float(second % 7)) for second in range(100))
    series = Series({"channel": "<shop>", "outcome": "sent"}, points)
    findings = Findings(answers={(board.name, graph.title, expression): [series]}, begin=0, end=99)

    picture = draw(board, findings)

    texts = ["".join(each.itertext()) for each in ElementTree.fromstring(picture).iter()]
    assert all(panel.title in texts for panel in board.panels)
    assert "<shop> sent" in texts
    assert texts.count("nothing in this run") == sum(bool(panel.queries) for panel in board.panels) - 1
