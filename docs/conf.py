"""Sphinx's configuration of the site: `make docs`.

The pages are plain Markdown whose links work on a code host, and Sphinx reads them where they are. A list of
pages gets the contents at the side. The reference is written into `docs/reference/api/`.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

from build_tools import reference
from build_tools.sources import ROOT

project = html_title = "Whorl"
extensions = ["myst_parser", "sphinx.ext.autodoc"]
root_doc = "docs/README"
include_patterns = [
    *("*.md", "bench/README.md", "examples/README.md", "recipes/README.md", "tests/*/README.md"),
    *("docs/**.md", "docs/reference/api/*.rst"),
]
exclude_patterns = [".*", "build", "dist", "src"]
html_theme = "furo"
html_copy_source = html_show_copyright = html_show_sphinx = False
html_static_path = html_css_files = ["whorl.css"]
myst_heading_anchors = 4
myst_links_external_new_tab = False
# A name of two classes leads to one of them; not every page is in the list.
suppress_warnings = ["myst.header", "ref.python", "toc.not_included"]
default_role = "literal"
autodoc_typehints = "signature"
autodoc_member_order = "bysource"
add_module_names = False
maximum_signature_line_length = 80
python_use_unqualified_type_names = True


def setup(app: Any) -> None:
    app.connect("builder-inited", write_reference)
    app.connect("source-read", add_contents)
    app.connect("autodoc-process-docstring", complete_docstring)
    app.connect("build-finished", lead_to_the_first_page)


def write_reference(app: Any) -> None:
    folder = ROOT / "docs" / "reference" / "api"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for name, text in reference.pages_of_reference().items():
        (folder / f"{name}.rst").write_text(text, encoding="utf-8")


def add_contents(app: Any, name: str, source: list[str]) -> None:
    """Make hidden contents of the lists of pages, and lead links to folders to the page of each folder."""
    text = re.sub(r"(\]\([^)\s:]*/)\)", r"\1README.md)", source[0])
    if name == "docs/reference/api":
        text += contents("", [f"api/{module}" for module in reference.MODULES])
    elif name in ("docs/README", "docs/decisions/README"):
        for part in re.split(r"^## ", text, flags=re.MULTILINE)[1:]:
            links = re.findall(r"^\* \[(.*)\]\(([^)]+)\.md\)", part, re.MULTILINE)
            pages = [page if title.isdigit() else f"{title} <{page}>" for title, page in links]
            text += contents(part.partition("\n")[0], pages)
    source[0] = text


def contents(caption: str, pages: list[str]) -> str:
    options = [":hidden:", f":caption: {caption}"] if caption else [":hidden:"]
    return "\n".join(["\n```{toctree}", *options, "", *pages, "```\n"])


def complete_docstring(app: Any, what: str, name: str, thing: Any, options: Any, lines: list[str]) -> None:
    if what in ("function", "method"):
        reference.complete(name, thing, lines)


def lead_to_the_first_page(app: Any, error: Exception | None) -> None:
    first = '<meta http-equiv="refresh" content="0; url=docs/README.html">\n'
    (Path(app.outdir) / "index.html").write_text(first, encoding="utf-8")
