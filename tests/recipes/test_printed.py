"""The recipes beside all numbers that the paper prints or cites: `printed.ROWS`."""

from fnmatch import fnmatch
from functools import reduce
from pathlib import Path

import pytest

from lion import recipes
from tests.recipes.printed import CITED, EPOCHS, LR, OPTIMIZER, PRINTED, READ, ROWS, TASKS, WD

FAMILIES = (
    "imagenet.",
    "cifar100.",
    "ablation.",
    "distill.imagenet_",
    "mlm.c4_",
    "glue.",
    "causal.openwebtext_",
    "lra.",
)
PAPER = [x for x in recipes.RECIPES if x.startswith(FAMILIES) and not x.endswith("_cifar10")]
DIFFERENCES = Path(__file__).parents[2] / "docs" / "differences.md"


def matching(patterns):
    """The names of recipes; a pattern that begins with ! takes some away."""
    found = []
    for pattern in patterns.split():
        names = {x for x in PAPER if fnmatch(x, pattern.lstrip("!"))}
        assert names, f"{pattern} is no recipe"
        found = [x for x in found if x not in names] if pattern.startswith("!") else [*found, *names]
    return found


def number(run, name):
    found = READ[name](run) if name in READ else reduce(getattr, name.split("."), run)
    return float(f"{found:.9g}") if isinstance(found, float) else found  # a quotient is not to the last bit


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.where}: {row.recipes}")
def test_recipes_have_the_numbers_that_are_printed_or_cited(row):
    for name in matching(row.recipes):
        run = recipes.recipe(name)
        assert {field: number(run, field) for field in row.numbers} == row.numbers, name


def test_every_recipe_of_the_paper_has_numbers():
    assert len(PAPER) > 300
    assert set(PAPER) == {name for row in ROWS for name in matching(row.recipes)}
    assert {x.split(".")[0] for x in PAPER} == {x.split(".")[0] for x in FAMILIES}


def test_where_the_print_differs_from_the_files_of_glue_is_in_the_docs():
    names = {"bert24": "BERT24", "m2_base": "M2-BASE", "m2_large": "M2-LARGE", "hydra": "Hydra"}
    tasks = {**{x: x.upper() for x in TASKS}, "sst2": "SST-2", "cola": "CoLA", "stsb": "STS-B"}
    kinds = {LR: "learning rate", WD: "weight decay", EPOCHS: "epochs", OPTIMIZER: "optimizer"}

    def shown(field, value):
        if field == OPTIMIZER:
            return "D. AdamW" if value else "AdamW"
        return f"{value:.0e}".replace("e-0", "e-") if isinstance(value, float) else str(value)

    differing = {
        (names[recipe], tasks[task], kinds[field], shown(field, printed), shown(field, cited))
        for recipe, cells in CITED.items()
        for field, values in cells.items()
        for task, printed, cited in zip(TASKS, PRINTED[recipe][field], values, strict=True)
        if printed != cited
    }
    table = DIFFERENCES.read_text().partition("| recipe | task |")[2].partition("\n\n")[0].splitlines()[2:]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table]
    assert {(first.split(" (")[0], *others) for first, *others in rows} == differing
    assert len(rows) == len(differing) == 9
