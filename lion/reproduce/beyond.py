"""Beyond the paper: what decays of their own for each direction are worth, and first decays that know the length.

The paper's decays are symmetric: the same for a walk forward and a walk in reverse, so that a layer cannot tell left
from right (docs/maths.md, "Read backwards"). With `two_sided` each walk has its own.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from lion.reproduce.exhibits import Cell, Claim, Exhibit, Numbers, ScaleName, Table, Value, register_exhibit
from lion.reproduce.paper.image_runs import MINUTES, on_cifar10
from lion.reproduce.readings import SEEDS, accuracy
from lion.reproduce.steps import Step, seeds

TWO_SIDED = "--model.two_sided true"
COLUMNS = ("LION-S, symmetric", "LION-S, two-sided", "LION-D, symmetric", "LION-D, two-sided", "softmax")


class Task(NamedTuple):
    runs: Callable[..., tuple[Step, ...]]  # of a recipe and its fields
    recipe: str  # with a place for the variant
    fields: str = ""  # for the linear variants, which go without positions


def _seeds(minutes: float) -> Callable[..., tuple[Step, ...]]:
    return lambda recipe, *fields: seeds(SEEDS, recipe, *fields, minutes=minutes)


TASKS = {
    "CIFAR-10, 64 patches": Task(on_cifar10, "cifar10.{}"),
    "CIFAR-10, 256 grey pixels": Task(_seeds(4), "lra_laptop.image.{}"),
    "ListOps": Task(_seeds(2), "lra_laptop.listops.{}"),
    "masked words": Task(_seeds(8), "mlm.{}"),
    "splice junctions": Task(_seeds(1.5), "dna.splice_{}", "--model.positions none --aligned false"),
}
ABOUT = (
    "Models of lion's own recipes at laptop scale, as many steps for all of a row. Accuracy on the eval set; "
    "of masked words, on the masked tokens. The linear models have no positions, softmax has learned ones. ListOps and "
    "the pixels have diagonal decays (the arena's models), the others one for each head."
)


def _cells(task: Task) -> list[Cell]:
    found = []
    for variant in ("lion_s", "lion_d"):
        for sides in ("", TWO_SIDED):
            fields = [x for x in (task.fields, sides) if x]
            found.append(Cell(None, task.runs(task.recipe.format(variant), *fields), accuracy))
    return [*found, Cell(None, task.runs(task.recipe.format("softmax")), accuracy)]


DIRECTIONS = {
    "forward": ("ablation.{}_forward_cifar10", ""),
    "reverse": ("ablation.{}_reverse_cifar10", ""),
    "alternating": ("ablation.{}_alternating_cifar10", ""),
    "both, symmetric": ("ablation.{}_both_cifar10", ""),
    "both, two-sided": ("ablation.{}_both_cifar10", TWO_SIDED),
}
SCANS = {"LION-S": "lion_s", "LION-S 2 scans": "lion_s_2scan"}
ONE_WAY = ("forward", "reverse", "alternating")


def _directions() -> Table:
    rows = {}
    for row, (recipe, sides) in DIRECTIONS.items():
        fields = [sides] if sides else []
        rows[row] = [Cell(None, on_cifar10(recipe.format(x), *fields), accuracy) for x in SCANS.values()]
    softmax = on_cifar10("cifar10.softmax", "--model.class_token false --model.pool mean")
    rows["softmax"] = [Cell(None, softmax, accuracy), Cell(None, softmax, accuracy)]
    title = "Directions on CIFAR-10: all rows classify the mean of the patches, without a class token."
    return Table(tuple(SCANS), rows, title=title)


def _better(row: str, variant: str) -> Callable[[Numbers], Sequence[Value]]:
    return lambda n: [n(row, f"{variant}, two-sided").minus(n(row, f"{variant}, symmetric"))]


def _claims() -> list[Claim]:
    found = [
        Claim(f"{task}: two-sided {variant} is better than symmetric", _better(task, variant))
        for task in TASKS
        for variant in ("LION-S", "LION-D")
    ]
    two = "both, two-sided"
    for scans in SCANS:
        found.append(
            Claim(
                f"directions, {scans}: both ways with two-sided decays are no worse than one way",
                lambda n, scans=scans: [_no_worse(n(two, scans), n(row, scans)) for row in ONE_WAY],  # type: ignore[misc]
            )
        )
        found.append(
            Claim(
                f"directions, {scans}: both ways with two-sided decays are better than softmax",
                lambda n, scans=scans: [n(two, scans).minus(n("softmax", scans))],  # type: ignore[misc]
            )
        )
    return found


def _no_worse(a: Value, b: Value) -> Value:
    """Above 0 where a is not below b by more than a standard error."""
    apart = a.minus(b)
    return Value(apart.mean + apart.error + 1e-9)


@register_exhibit(
    "twosided",
    "Beyond the paper: decays of their own for each direction.",
    label="docs/maths.md, Read backwards",
    claim="not in it. A layer whose decays are symmetric cannot tell left from right.",
)
def twosided(scale: ScaleName) -> Exhibit:
    if scale == "paper":
        return Exhibit(
            "Nothing: the paper has no two-sided decays.", not_run="all of it: it is a study at laptop scale."
        )
    tasks = Table(COLUMNS, {row: _cells(task) for row, task in TASKS.items()}, title="Accuracy, %.")
    return Exhibit(ABOUT, (tasks, _directions()), tuple(_claims()))


# First decays that know the length.

LENGTH = "--model.half_lives 1,0"
OWN, ALL = "own first decays", "half-lives of 1 token to all"
SHORT = ("CIFAR-10, 64 patches", "ListOps", "splice junctions")
VARIANTS = {"LION-S": "lion_s", "LION-D": "lion_d"}
CONVOLUTIONS = "convolutions embed the patches"
CHANGES = {
    OWN: "",
    ALL: LENGTH,
    f"{ALL}, two-sided": f"{LENGTH} {TWO_SIDED}",
    "learned positions": "--model.positions learned",
    CONVOLUTIONS: "--model.stem conv",
}
SLOWER = {CONVOLUTIONS: 3.5}  # minutes of a run, on a core


def _first_decays() -> Table:
    rows = {}
    for name in SHORT:
        task = TASKS[name]
        rows[name] = [
            Cell(None, task.runs(task.recipe.format(variant), *filter(None, (task.fields, change))), accuracy)
            for variant in VARIANTS.values()
            for change in ("", LENGTH)
        ]
    columns = tuple(f"{variant}, {change}" for variant in VARIANTS for change in (OWN, ALL))
    return Table(columns, rows, title="Accuracy, %.")


def _changes() -> Table:
    rows = {
        row: [
            Cell(None, on_cifar10(f"cifar10.{x}", *filter(None, (fields,)), minutes=SLOWER.get(row, MINUTES)), accuracy)
            for x in VARIANTS.values()
        ]
        for row, fields in CHANGES.items()
    }
    rows["softmax"] = [Cell(None, on_cifar10("cifar10.softmax"), accuracy)] * len(VARIANTS)
    return Table(tuple(VARIANTS), rows, title="CIFAR-10, one change at a time. softmax has learned positions.")


@register_exhibit(
    "halflives",
    "Beyond the paper: first decays that know the length of the sequences, positions, and the stem.",
    label="docs/log.md, Decays on CIFAR-10",
    claim="not in it. LION-D's heads begin with half-lives of 22 to 2,800 tokens, whatever the length.",
)
def halflives(scale: ScaleName) -> Exhibit:
    if scale == "paper":
        return Exhibit("Nothing: the paper has no such decays.", not_run="all of it: it is a study at laptop scale.")
    about = (
        "As `lion reproduce twosided`, with which it shares runs. The half-life of the first head is a token, that of "
        "the last as many as the sequences have, the others between them; ListOps has diagonal decays, where these are "
        "the slowest channels'."
    )
    claims = [
        Claim(
            f"{task}: {variant} that begins with half-lives up to the length is better",
            lambda n, task=task, x=variant: [n(task, f"{x}, {ALL}").minus(n(task, f"{x}, {OWN}"))],  # type: ignore[misc]
        )
        for task in SHORT
        for variant in VARIANTS
    ]
    claims += [
        Claim(
            f"CIFAR-10, {variant}: better with {row}",
            lambda n, row=row, x=variant: [n(row, x).minus(n(OWN, x))],  # type: ignore[misc]
        )
        for row in list(CHANGES)[2:]
        for variant in VARIANTS
    ]
    return Exhibit(about, (_first_decays(), _changes()), tuple(claims))
