"""Builds the site in build/site/ from the pages and the docstrings: `python -m build_tools.site`.

The pages are plain Markdown whose links work on a code host. The builder copies them into build/site-source/
and rewrites the links there. Each warning of Sphinx's is an error, and so is a link to nothing.
"""

from __future__ import annotations

import html
import re
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path
from urllib.request import url2pathname

from build_tools.reference import pages_of_reference
from build_tools.sources import ROOT

STAGED = ROOT / "build" / "site-source"
SITE = ROOT / "build" / "site"
PAGES = (
    "*.md",
    "bench/README.md",
    "docs/**/*.md",
    "examples/README.md",
    "recipes/README.md",
    "tests/*/README.md",
)
PICTURES = ("docs/**/*.svg", "docs/**/*.png")
LINK = re.compile(r"((?:\[[^\]]*)?)(\]\()([^)\s#:]+)((?:#[^)\s]*)?\))")
CODE = re.compile(r"(^```.*?^```|`[^`\n]+`)", re.DOTALL | re.MULTILINE)
REFERENCE = "reference/api"

CONFIGURATION = """
project = "Whorl"
extensions = ["myst_parser", "sphinx.ext.autodoc"]
root_doc = "index"
html_theme = "furo"
html_title = "Whorl"
html_copy_source = False
html_show_copyright = False
html_show_sphinx = False
html_static_path = ["_static"]
html_css_files = ["whorl.css"]
myst_heading_anchors = 4
myst_links_external_new_tab = False
suppress_warnings = ["myst.header", "ref.python"]  # a name of two classes leads to one of them
default_role = "literal"
autodoc_typehints = "signature"
autodoc_member_order = "bysource"
add_module_names = False
maximum_signature_line_length = 80
python_use_unqualified_type_names = True


def setup(app):
    from build_tools.reference import complete

    def completed(app, what, name, thing, options, lines):
        if what in ("function", "method"):
            complete(name, thing, lines)

    app.connect("autodoc-process-docstring", completed)
"""
STYLE = """
table.docutils { display: block; overflow-x: auto; max-width: 100%; }
.content img { max-width: 100%; height: auto; }
code.literal { overflow-wrap: anywhere; }
table.docutils td:has(code) { min-width: 9em; }
"""


def main() -> None:
    """Build the site; end with an error if a page has a fault."""
    stage()
    options = ["-W", "--keep-going", "-q", "-E", "-b", "html", "-d", str(ROOT / "build" / "site-doctrees")]
    shutil.rmtree(SITE, ignore_errors=True)
    answer = subprocess.run([sys.executable, "-m", "sphinx", *options, str(STAGED), str(SITE)])
    if answer.returncode:
        sys.exit(answer.returncode)
    missing = missing_targets(SITE)
    if missing:
        sys.exit("links to nothing:\n" + "\n".join(missing))
    print(f"{SITE.relative_to(ROOT)}/index.html: {len(list(SITE.rglob('*.html')))} pages")


def stage() -> None:
    """Write the sources that Sphinx reads: copies of the pages, the reference, a configuration."""
    shutil.rmtree(STAGED, ignore_errors=True)
    pages = {path: staged_name(path) for pattern in PAGES for path in sorted(ROOT.glob(pattern))}
    shown: set[Path] = set()
    for path, name in pages.items():
        write(name, staged_text(path, name, pages, shown))
    for path in sorted(shown):
        write(name_of_source(path), text_of_source(path))
    for pattern in PICTURES:
        for path in ROOT.glob(pattern):
            copy = STAGED / path.relative_to(ROOT / "docs")
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, copy)
    reference = pages_of_reference()
    for name, text in reference.items():
        write(f"{REFERENCE}/{name}.rst", text)
    with (STAGED / f"{REFERENCE}.md").open("a", encoding="utf-8") as page:
        page.write(toctree("", [f"api/{name}" for name in reference]))
    write("conf.py", CONFIGURATION)
    write("_static/whorl.css", STYLE)


def write(name: str, text: str) -> None:
    """Write a file of the staged sources."""
    path = STAGED / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def staged_name(path: Path) -> str:
    """Return the name of a page below the root of the site: those of docs/ lose their folder."""
    relative = path.relative_to(ROOT)
    if relative.parts[0] == "docs":
        relative = relative.relative_to("docs")
        return str(relative.with_name("index.md") if relative.name == "README.md" else relative)
    if relative.name == "README.md":
        return "project/" + ("-".join(relative.parts[:-1]) or "readme") + ".md"
    return f"project/{relative.name.lower()}"


def name_of_source(path: Path) -> str:
    """Return the name of the page that shows a source file, or the content of a folder."""
    return f"source/{path.relative_to(ROOT)}.md"


def text_of_source(path: Path) -> str:
    """Return a page with a source file as it stands, or with the names in a folder."""
    title = f"---\norphan: true\n---\n\n# {path.relative_to(ROOT)}\n\n"
    if path.is_dir():
        return title + "".join(f"* `{item.name}`\n" for item in sorted(path.iterdir()))
    kind = {".py": "python", ".json": "json"}.get(path.suffix, "text")
    return f"{title}````{kind}\n{path.read_text(encoding='utf-8')}````\n"


def staged_text(path: Path, name: str, pages: dict[Path, str], shown: set[Path]) -> str:
    """Return a page with the links of the site. Its list of pages becomes the contents at the side."""
    children: list[tuple[str, str, str]] = []  # a heading, a page below it, and its title there
    heading = ""

    def rewritten(match: re.Match[str]) -> str:
        title, middle, link, end = match.groups()
        target = target_of(path, link)
        if target.suffix in (".svg", ".png"):
            new = str(target.relative_to(ROOT / "docs"))
        elif target in pages:
            new = pages[target]
            children.append((heading, new, title.removeprefix("[")))
        else:
            shown.add(target)
            new = name_of_source(target)
        return title + middle + relative_link(name, new) + end

    lines = []
    text = path.read_text(encoding="utf-8")
    for part in CODE.split(text):
        if CODE.fullmatch(part):
            lines.append(part)
            continue
        for line in part.splitlines(keepends=True):
            if line.startswith("## "):
                heading = line[3:].strip()
            lines.append(LINK.sub(rewritten, line))
    text = "".join(lines)
    if path.name == "README.md" and path.parent.is_relative_to(ROOT / "docs"):
        return text + contents(name, children)
    return text if name in listed_pages() else f"---\norphan: true\n---\n\n{text}"


def contents(name: str, children: list[tuple[str, str, str]]) -> str:
    """Return the hidden lists of pages that Sphinx makes the side of the site from."""
    headings: dict[str, list[str]] = {}
    seen: set[str] = set()
    for heading, page, title in children:
        if page not in seen:
            seen.add(page)
            place = relative_link(name, page).removesuffix(".md")
            headings.setdefault(heading, []).append(place if name != "index.md" else f"{title} <{place}>")
    return "".join(toctree(*item) for item in headings.items())


def toctree(caption: str, pages: list[str]) -> str:
    """Return a hidden list of pages."""
    options = ":hidden:\n" + (f":caption: {caption}\n" if caption else "")
    return "\n```{toctree}\n" + options + "\n" + "\n".join(pages) + "\n```\n"


@cache
def listed_pages() -> frozenset[str]:
    """Return the pages that the lists of docs/README.md and of the decisions name."""
    indexes = (ROOT / "docs" / "README.md", ROOT / "docs" / "decisions" / "README.md")
    links = (
        (index, match[3]) for index in indexes for match in LINK.finditer(index.read_text(encoding="utf-8"))
    )
    return frozenset(staged_name(target_of(index, link)) for index, link in links)


def target_of(page: Path, link: str) -> Path:
    """Return the file that a link of a page names; that of a folder with a README is the README."""
    target = (page.parent / link).resolve()
    if (target / "README.md").exists():
        target = target / "README.md"
    if not target.exists():
        sys.exit(f"{page.relative_to(ROOT)}: {link} does not exist")
    return target


def relative_link(source: str, target: str) -> str:
    """Return the path of a page from another page."""
    return "../" * source.count("/") + target


def missing_targets(site: Path) -> list[str]:
    """Return the links inside the site that lead to no page, or to no heading of it."""
    texts = {page: page.read_text(encoding="utf-8") for page in site.rglob("*.html")}
    ids = {page: set(re.findall(r' id="([^"]+)"', text)) for page, text in texts.items()}
    missing = []
    for page, text in texts.items():
        for link in set(re.findall(r'<(?:a|img|link)[^>]* (?:href|src)="([^"]+)"', text)):
            if re.match(r"[a-z]+:", link) or link == "#":
                continue
            path, _, anchor = html.unescape(link).partition("#")
            target = (page.parent / url2pathname(path.partition("?")[0])).resolve() if path else page
            if not target.exists() or (anchor and target in ids and anchor not in ids[target]):
                missing.append(f"{page.relative_to(site)}: {link}")
    return sorted(missing)


if __name__ == "__main__":
    main()
