"""The documentation as a site: built strictly, so that no link or anchor is broken,
with all pages in its navigation, and nothing that another host would have to send."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "scripts"))
import site_pages  # noqa: E402  what MkDocs calls

# What fetches, and from where. Links that a reader may follow are not among them.
FETCHED = re.compile(
    r"<(?:script|img|iframe|source|link(?! rel=.?canonical))\b[^>]*?(?:src|href)=[\"']?"
    r"((?:https?:)?//[^\"'>\s]*)"
)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", out]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return out


def test_every_page_is_there(site: Path) -> None:
    pages = {p.relative_to(ROOT / "docs") for p in (ROOT / "docs").rglob("*.md")}
    for page in pages - {Path("README.md")}:
        assert (site / page.with_suffix(".html")).exists(), page
    first = (site / "index.html").read_text(encoding="utf-8")
    assert "A backend delegate that runs PyTorch models on the GPU" in first
    for name in ("contents", "contributing", "changelog"):
        assert f'href="{name}.html"' in first, name
    # A file of the sources that a page leads to.
    assert (site / "sources" / "executorch_webgpu" / "portable" / "plans.fbs").exists()


def test_blocks_are_those_of_common_markdown(site: Path) -> None:
    """The site's renderer sees the same lists, code and tables that others see."""
    reader = MarkdownIt("commonmark").enable("table")
    for page in (*(ROOT / "docs").rglob("*.md"), *ROOT.glob("*.md")):
        place = site_pages.place(page.relative_to(ROOT).as_posix())
        made = (site / place).with_suffix(".html").read_text(encoding="utf-8")
        _, _, article = made.partition("<article")
        article, _, _ = article.partition("</article>")
        expected = reader.render(page.read_text(encoding="utf-8"))
        assert blocks(article) == blocks(expected), page


def blocks(html: str) -> dict[str, int]:
    names = ("ul", "ol", "li", "pre", "table", "tr", "h2", "h3")
    return {name: len(re.findall(rf"<{name}\b", html)) for name in names}


def test_nothing_comes_from_elsewhere(site: Path) -> None:
    for page in site.rglob("*.html"):
        assert FETCHED.findall(page.read_text(encoding="utf-8")) == [], page
    sheets = "".join(p.read_text(encoding="utf-8") for p in site.rglob("*.css"))
    assert re.findall(r"(?:@import|url\()\s*[\"']?(?:https?:)?//[^)]*", sheets) == []
