"""Fields of dataclasses in the API's pages: the comment behind each, as `lion train RECIPE --help` has it."""

import itertools

from griffe import Attribute, Class, Docstring, Extension


class Fields(Extension):
    def on_class_members(self, *, cls: Class, **_) -> None:
        if not any("dataclass" in str(decorator.value) for decorator in cls.decorators):
            return
        fields = [(x.name, _comment(x)) for x in cls.members.values() if isinstance(x, Attribute) and x.annotation]
        if rows := "".join(f"\n    {name}: {words}" for name, words in fields if words):
            before = cls.docstring.value if cls.docstring else ""
            cls.docstring = Docstring(f"{before}\n\nAttributes:{rows}", parent=cls)


def _comment(field: Attribute) -> str:
    """Behind the field, and in lines of comments below it."""
    lines = field.lines_collection[field.filepath]
    below = itertools.takewhile(lambda line: line.strip().startswith("# "), lines[field.endlineno :])
    behind = lines[field.endlineno - 1].partition("  # ")[2]
    return " ".join([behind, *(line.strip()[2:] for line in below)]).strip() if behind else ""
