"""The documents cite files that exist."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
FILES = [
    path.relative_to(ROOT).as_posix()
    for folder in ("src", "tests", "docs", "examples", "benchmarks")
    for path in (ROOT / folder).rglob("*.*")
] + [path.name for path in ROOT.glob("*.*")]
TO_BE_WRITTEN = {  # "How to add a part" in docs/architecture.md
    "nn/observation/learned_scale.py",
    "nn/encoders/last_two.py",
    "smc/smoothers/filtered.py",
    "smc/resampling/independent.py",
    "inference/proposals/wide.py",
}
MADE_BY_RUNNING = {"/openapi.json", "store.json"}  # what a server answers, and what it writes into a model's folder


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_cited_files_exist(document):
    """By their whole path, or by its end: documents leave out folders that their text names."""
    text = document.read_text(encoding="utf-8")
    cited = set(re.findall(r"(?<![\w/.-])[\w/-]+\.(?:md|py|c|h|json|js)\b", text)) - TO_BE_WRITTEN - MADE_BY_RUNNING
    assert sorted(path for path in cited if not any(f"/{file}".endswith(f"/{path}") for file in FILES)) == []


def test_every_page_is_in_the_navigation_of_the_site():
    pages = re.findall(r"^ +- .+: ([\w/-]+\.md)$", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"), re.MULTILINE)
    there_are = [path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md")]
    assert sorted(pages) == sorted(there_are)


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_links_lead_to_files(document):
    linked = re.findall(r"\]\(([\w./-]+)[)#]", document.read_text(encoding="utf-8"))
    assert [link for link in linked if not (document.parent / link).exists()] == []
