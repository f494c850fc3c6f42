# SPDX-License-Identifier: Apache-2.0
"""Checks that what README.md and docs/ speak of is there: links.py ROOT

Links of the form [text](path), and paths of this project such as pool/pool.c in the text.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from tree import finish

LINK = re.compile(r"\]\(([^)#]+)(?:#[^)]*)?\)")
NAMED = re.compile(r"(?<![\w/.-])((?:shim|pool|tests|scripts|docs)/[\w./-]*[\w-])(?![\w/(*])")


def check_text(root: Path, page: Path, text: str) -> list[str]:
    """What the page names and the tree lacks."""
    problems = []
    for target in LINK.findall(text):
        if "://" not in target and not (page.parent / target).exists():
            problems.append(f"{page.relative_to(root)}: the link to {target} leads nowhere")
    for target in NAMED.findall(text):
        # A name in capitals stands for any name: tests/victims/NAME.c.
        if not re.search(r"\b[A-Z]{3,}\b(?!\.md)", target) and not (root / target).exists():
            problems.append(f"{page.relative_to(root)}: {target} is not there")
    return problems


def main(root: Path) -> int:
    pages = [root / "README.md", *sorted((root / "docs").glob("*.md"))]
    problems = []
    for page in pages:
        problems += check_text(root, page, page.read_text(encoding="utf-8"))
    return finish(problems, len(pages), "pages")


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]).resolve()))
