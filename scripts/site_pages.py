"""What mkdocs.yml cannot say: pages outside docs/, the navigation, links to sources.

Enters: MkDocs' events. Leaves: a site whose navigation is the list of docs/README.md,
in which README.md and its like are pages without being copied, and in which a link to
a file of the sources leads to that file, which the site then has.
"""

from __future__ import annotations

import re
from pathlib import Path, PurePosixPath
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parent.parent
INDEX = "docs/README.md"
# Pages that are elsewhere than in docs/, or would be the site's first page: by their
# file, their place in the site.
PLACES = {
    "README.md": "index.md",
    INDEX: "contents.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "SECURITY.md": "reporting.md",
    "examples/cpp/README.md": "examples-cpp.md",
    "web/README.md": "npm.md",
}
# Where the site has files of the sources that pages link to.
SOURCES = "sources"
_LINK = re.compile(r"\[([^][]*)\]\(([^)#:\s]+)(#[^)]*)?\)")


def place(file: str) -> str:
    """Where the site has a file of the project."""
    if file in PLACES:
        return PLACES[file]
    if file.startswith("docs/"):
        return file.removeprefix("docs/")
    return f"{SOURCES}/{file}"


def target(page: str, link: str) -> str:
    """The file of the project that a link of one of its pages leads to."""
    path = (ROOT / page).parent / link
    return path.resolve().relative_to(ROOT).as_posix()


def navigation() -> list[dict[str, list[str]]]:
    """Sections and pages, as docs/README.md lists them: a paragraph that ends with a
    colon is a section, and the first links of its items are its pages."""
    sections: list[dict[str, list[str]]] = []
    pages: list[str] = []
    for line in (ROOT / INDEX).read_text(encoding="utf-8").splitlines():
        if re.match(r"\w.*:$", line):
            pages = []
            sections.append({re.split("[,:]", line)[0]: pages})
        pages += [
            place(target(INDEX, link))
            for _, link, _ in _LINK.findall(line)
            if link.endswith(".md") and place(target(INDEX, link)) not in pages
        ]
    return sections


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    config.nav = [PLACES[INDEX], *navigation()]
    return config


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    for file in [file for file in files if f"docs/{file.src_uri}" in PLACES]:
        files.remove(file)
    for file, uri in PLACES.items():
        add(files, config, file, uri)
    pages = [file for file in files if file.is_documentation_page()]
    for page in pages:
        for _, link, _ in _LINK.findall(page.content_string):
            linked = target(source(page), link)
            uri = place(linked)
            if files.get_file_from_path(uri) is None and (ROOT / linked).is_file():
                add(files, config, linked, uri)
    return files


def add(files: Files, config: MkDocsConfig, file: str, uri: str) -> None:
    files.append(File.generated(config, uri, abs_src_path=str(ROOT / file)))


def source(file: File) -> str:
    """The file of the project that one of the site is."""
    assert file.abs_src_path is not None
    return Path(file.abs_src_path).resolve().relative_to(ROOT).as_posix()


def on_page_markdown(markdown: str, *, page: Page, **_: Any) -> str:
    above = "../" * (len(PurePosixPath(page.file.src_uri).parts) - 1)

    def moved(found: re.Match[str]) -> str:
        text, link, anchor = found.groups(default="")
        linked = target(source(page.file), link)
        if text.endswith(link) and link.endswith(".md"):
            text = title(linked)
        return f"[{text}]({above}{place(linked)}{anchor})"

    return indented(_LINK.sub(moved, markdown))


def title(file: str) -> str:
    """What a page is called where others say its file's name."""
    first, _, _ = (ROOT / file).read_text(encoding="utf-8").partition("\n")
    return first.removeprefix("# ")


def indented(markdown: str) -> str:
    """Lists as Python's Markdown wants them, which others are not so strict about: what
    is in an item is indented by four columns, and a blank line is before a list and
    between items that have paragraphs."""
    lines: list[str] = []
    width, has_paragraphs, in_code = 0, False, False
    for line in markdown.splitlines():
        begin = None if in_code else re.match(r"(\d+\. |- )", line)
        if begin is not None:
            if lines and lines[-1] and (not width or has_paragraphs):
                lines.append("")
            width, has_paragraphs = len(begin[0]), False
        elif not line:
            has_paragraphs = width > 0
        elif width and line.startswith(" " * width):
            line = " " * 4 + line[width:]
        elif not in_code and not (width and lines[-1]):
            width = 0
        if line.lstrip().startswith("```"):
            in_code = not in_code
        lines.append(line)
    return "\n".join(lines)
