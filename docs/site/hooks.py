"""What mkdocs.yml cannot say: pages of files outside of docs and of notebooks, titles in place of file names."""

import re
import sys
from pathlib import Path

from mkdocs.structure.files import File

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(HERE))
from notebooks import pages  # noqa: E402

OUTSIDE = {"index.md": "README.md", "changelog.md": "CHANGELOG.md"}
HOME = "---\nhide: [navigation]\n---\n\n"
NAMED = re.compile(r"\[[\w/]+\.md\](\([\w/.]+\.md(?:#[\w-]+)?\))")  # [maths.md](maths.md#errata)


def on_config(config):
    """The navigation has every page of docs/paper, figures first, by their numbers."""
    (results,) = (section["Results"] for section in config.nav if "Results" in section)
    (found,) = (section["Its pages"] for section in results if "Its pages" in section)
    made = sorted((ROOT / "docs" / "paper").glob("*/README.md"), key=_by_number)
    found += [f"paper/{path.parent.name}/README.md" for path in made]
    return config


def _by_number(path):
    name, number = re.fullmatch(r"(\D+)(\d*)", path.parent.name).groups()
    return name, int(number or 0)


def on_files(files, config):
    for page, name in OUTSIDE.items():
        text = (ROOT / name).read_text(encoding="utf-8")
        text = text.replace("](docs/", "](").replace("](CHANGELOG.md", "](changelog.md").replace(".ipynb)", ".md)")
        files.append(File.generated(config, page, content=HOME * (page == "index.md") + text))
    for file in pages(ROOT / "docs" / "notebooks", config):
        files.append(file)
    return files


def on_page_markdown(text, page, config, files):
    """Links that are named by a file get the page's own title."""
    return NAMED.sub(lambda x: f"[{_title(x[1], page, files)}]{x[1]}", text)


def _title(link, page, files):
    path = link[1:-1].split("#")[0]
    target = files.get_file_from_path((Path(page.file.src_uri).parent / path).as_posix())
    return re.search(r"^# (.*)", target.content_string, re.M)[1] if target else path
