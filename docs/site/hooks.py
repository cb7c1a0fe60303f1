"""What mkdocs does beside mkdocs.yml: pages of files outside of docs, and titles in the place of file names."""

import re
from pathlib import Path

from mkdocs.structure.files import File

ROOT = Path(__file__).parents[2]
PAGES = {"index.md": "README.md", "changelog.md": "CHANGELOG.md"}
HOME = "---\nhide: [navigation]\n---\n\n"
NAMED = re.compile(r"\[[\w/]+\.md\](\([\w/.]+\.md(?:#[\w-]+)?\))")  # [maths.md](maths.md#errata)


def on_files(files, config):
    for page, name in PAGES.items():
        text = (ROOT / name).read_text(encoding="utf-8")
        text = text.replace("](docs/", "](").replace("](CHANGELOG.md", "](changelog.md")
        files.append(File.generated(config, page, content=HOME * (page == "index.md") + text))
    return files


def on_page_markdown(text, page, config, files):
    """Links that are named by a file get the page's own title, which mkdocs fills in where there is none."""
    return NAMED.sub(lambda x: f"[{_title(x[1], page, files)}]{x[1]}", text)


def _title(link, page, files):
    path = link[1:-1].split("#")[0]
    target = files.get_file_from_path((Path(page.file.src_uri).parent / path).as_posix())
    return re.search(r"^# (.*)", target.content_string, re.M)[1] if target else path
