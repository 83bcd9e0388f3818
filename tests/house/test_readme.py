"""What the first page says works as it stands there."""

import re
from pathlib import Path

import pytest

from workers.app import App

ROOT = Path(__file__).resolve().parents[2]


def test_the_application_of_the_first_page_loads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    block = re.search(r"```python\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    assert block is not None
    (tmp_path / "shop.keys").write_text("k1 whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)

    names: dict[str, object] = {}
    exec(block[1], names)

    app = names["app"]
    assert isinstance(app, App)
    assert app.agents["support"].memory_key == "support"


def test_every_link_of_the_pages_leads_somewhere() -> None:
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *ROOT.joinpath("docs").rglob("*.md")]
    lost = [
        f"{page.relative_to(ROOT)}: {target}"
        for page in pages
        for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text(encoding="utf-8"))
        if "://" not in target and not (page.parent / target).exists()
    ]
    assert lost == []
