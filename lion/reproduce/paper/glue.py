"""GLUE: the recipes of fine-tuning, positional embeddings, which recipe is best, and all tasks."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from lion import recipes
from lion.reproduce.exhibits import Cell, Claim, Exhibit, Numbers, ScaleName, Table, Value, above, register_exhibit
from lion.reproduce.paper.text_runs import (
    IMDB,
    LAPTOP,
    LIONS,
    METRICS,
    MLM,
    MODELS,
    NO_GLUE,
    ON_IMDB,
    PAPER,
    average_cell,
    fine_tuned,
    glue_steps,
    on_imdb,
    pretraining,
    stand_in,
    task_cell,
)
from lion.reproduce.readings import accuracy
from lion.reproduce.steps import Step, seeds

AVERAGE = "Avg."
COLUMNS = (MLM, *(task.upper() for task in METRICS), AVERAGE)
NAMES = {"bert24": "BERT24", "m2_base": "M2-BASE", "m2_large": "M2-LARGE", "hydra": "Hydra", "modified": "Modified"}


def cells(numbers: str, runs: Sequence[Step], recipe: str, scale: ScaleName) -> list[Cell]:
    """A row of GLUE: the paper's MLM accuracy, tasks and average, and the runs that ours are read from."""
    mlm, *tasks, mean = (float(x) for x in numbers.split())
    steps = glue_steps(recipe, runs[0]) if scale == "paper" else {}
    own = [task_cell(printed, task, steps) for task, printed in zip(METRICS, tasks, strict=True)]
    return [Cell(mlm, tuple(runs), accuracy), *own, average_cell(mean, steps)]


# Table 8: what the recipes say.

TUNED_COLUMNS = ("MNLI", "QNLI", "QQP", "RTE", "SST2", "MRPC", "COLA", "STSB")
FIELDS: dict[str, Callable[[Any], float | str]] = {
    "LR": lambda run: run.optim.lr,
    "WD": lambda run: run.optim.weight_decay,
    "epochs": lambda run: run.epochs,
    "optimizer": lambda run: "D. AdamW" if run.optim.decoupled else "AdamW",
}
PRINTED = {  # a line for each of FIELDS; "D" is decoupled AdamW, "A" AdamW
    "bert24": """
        5e-5 1e-5 3e-5 1e-5 3e-5 8e-5 5e-5 3e-5
        5e-6 1e-5 3e-6 1e-6 3e-6 8e-5 5e-6 3e-6
        3 10 5 3 3 10 10 10
        D D D D D D D D""",
    "m2_base": """
        5e-5 5e-5 3e-5 1e-5 3e-5 8e-5 8e-5 8e-5
        5e-6 1e-5 3e-6 1e-6 3e-6 8e-5 5e-6 3e-6
        3 10 5 3 3 10 10 10
        D D D D D D D A""",
    "m2_large": """
        5e-5 5e-5 3e-5 5e-5 3e-5 8e-5 5e-5 8e-5
        5e-6 1e-6 3e-6 1e-6 3e-6 8e-6 1e-6 3e-5
        3 10 5 2 3 10 10 8
        D D D A D D D D""",
    "hydra": """
        1e-4 5e-5 5e-5 1e-5 5e-5 8e-5 1e-4 3e-5
        5e-6 1e-6 3e-6 1e-6 3e-6 8e-6 8e-6 3e-6
        2 7 3 3 2 10 10 8
        D D D A D D D D""",
    "modified": """
        1e-5 1e-5 1e-5 1e-5 1e-5 1e-5 1e-5 1e-5
        5e-6 1e-6 3e-6 1e-6 3e-6 8e-6 1e-6 3e-5
        3 10 5 2 3 10 10 8
        D D D A D D D D""",
}
LENGTH = {"bert24": 256, "m2_base": 128, "m2_large": 128, "hydra": 256, "modified": 128}  # of the caption
OPTIMIZERS = {"D": "D. AdamW", "A": "AdamW"}


def _tuned() -> Table:
    rows = {}
    for recipe, printed in PRINTED.items():
        runs = [recipes.recipe(f"glue.{recipe}_{task.lower()}") for task in TUNED_COLUMNS]
        for (field, read), line in zip(FIELDS.items(), printed.split("\n")[1:], strict=True):
            texts = [OPTIMIZERS.get(x) or float(x) for x in line.split()]
            pairs = zip(texts, runs, strict=True)
            rows[f"{NAMES[recipe]}, {field}"] = [Cell(text, value=read(run)) for text, run in pairs]
    return Table(TUNED_COLUMNS, rows, "{:g}")


def _tokens() -> Table:
    rows = {}
    for recipe, length in LENGTH.items():
        lengths = {recipes.recipe(f"glue.{recipe}_{task}").task.max_length for task in METRICS}  # type: ignore[attr-defined]
        rows[NAMES[recipe]] = [Cell(length, value=lengths.pop() if len(lengths) == 1 else str(sorted(lengths)))]
    return Table(("tokens",), rows, "{:g}", "Sequence length, of the caption.")


def _equal(a: Value, b: Value | float) -> Value:
    """Above 0 if they are the same."""
    return Value(1e-12 - abs(a.minus(b).mean))


def _modified(n: Numbers) -> list[Value]:
    rates = [_equal(n("Modified, LR", task), 1e-5) for task in TUNED_COLUMNS]
    rows = [(f"Modified, {field}", f"M2-LARGE, {field}") for field in ("WD", "epochs")]
    return rates + [_equal(n(a, task), n(b, task)) for a, b in rows for task in TUNED_COLUMNS]


def _long(n: Numbers) -> list[Value]:
    return [_equal(n(name, "tokens"), 256 if name in ("BERT24", "Hydra") else 128) for name in NAMES.values()]


@register_exhibit(
    "table8",
    "The recipes of fine-tuning on GLUE.",
    label="table:glue_hyperparams",
    claim="five recipes; all go on from C4's weights but for RTE, STS-B and MRPC, which go on from MNLI's.",
)
def table8(scale: ScaleName) -> Exhibit:
    table, tokens = _tuned(), _tokens()
    every = [cell for row in table.rows.values() for cell in row]
    same = sum(cell.printed == cell.value for cell in every)
    about = (
        f"Nothing is run: ours is what the recipes `glue.*` say. {same} of {len(every)} cells are as printed. That "
        "RTE, STS-B and MRPC go on from MNLI is in the plans of tables 9 to 11 (--scale paper)."
    )
    claims = (
        Claim("Modified is M2-LARGE with all learning rates at 1e-5", _modified),
        Claim("all recipes read 128 tokens, but BERT24 and Hydra 256", _long),
    )
    return Exhibit(about, (table, tokens), claims)


# Table 9: positional embeddings.

LEARNED = "--model.positions learned"


@register_exhibit(
    "table9",
    "Positional embeddings with LION-D and LION-S.",
    label="tab:ablation_posemb",
    claim="with positional embeddings the MLM accuracy of both rises by about 0.3 points.",
)
def table9(scale: ScaleName) -> Exhibit:
    numbers = {
        ("LION-D", ""): "66.62 82.85 52.49 89.63 88.43 91.86 85.96 83.94 53.58 78.59",
        ("LION-D", LEARNED): "66.97 83.37 54.08 89.52 88.32 92.35 83.58 79.40 54.53 78.15",
        ("LION-S", ""): "67.05 83.17 53.50 89.35 88.89 93.00 37.73 77.87 53.18 72.09",
        ("LION-S", LEARNED): "67.35 83.26 52.42 89.82 88.38 92.58 83.87 79.54 55.25 78.14",
    }
    rows = {}
    for (model, positions), line in numbers.items():
        runs = pretraining(MODELS[model], "base", scale, *([positions] if positions else []))
        beside = [Cell(None, on_imdb(MODELS[model], runs), accuracy)] if scale == "laptop" else []
        rows[f"{model}, positions" if positions else model] = [*cells(line, runs, "m2_base", scale), *beside]

    def gain(row: str) -> Callable[[Numbers], Value]:
        return lambda n: n(f"{row}, positions", MLM).minus(n(row, MLM))

    def tuned(row: str) -> Callable[[Numbers], Value]:
        return lambda n: fine_tuned(n, f"{row}, positions", AVERAGE).minus(fine_tuned(n, row, AVERAGE))

    def about_a_third(row: str) -> Callable[[Numbers], list[Value]]:
        return lambda n: [gain(row)(n).minus(0.1), gain(row)(n).minus(0.6).times(-1)]

    known = stand_in(scale)
    claims = [
        *(Claim(f"positions raise the MLM accuracy of {row}", lambda n, row=row: [gain(row)(n)])  # type: ignore[misc]
          for row in ("LION-D", "LION-S")),
        *(Claim(f"they raise that of {row} by about 0.3 points: 0.1 to 0.6", about_a_third(row))
          for row in ("LION-D", "LION-S")),
        Claim(f"on GLUE they lower LION-D{known}", lambda n: [tuned("LION-D")(n).times(-1)]),
        Claim(f"on GLUE they raise LION-S{known}", lambda n: [tuned("LION-S")(n)]),
    ]  # fmt: skip
    return _exhibit(scale, rows, claims, with_imdb=True)


def _exhibit(
    scale: ScaleName,
    rows: dict[str, list[Cell]],
    claims: Sequence[Claim],
    *,
    with_imdb: bool = False,
    words: str = "",
    not_run: str = NO_GLUE,
) -> Exhibit:
    laptop = scale == "laptop"
    columns = (*COLUMNS, IMDB) if laptop and with_imdb else COLUMNS
    about = " ".join(x for x in (LAPTOP if laptop else PAPER, ON_IMDB if laptop and with_imdb else "", words) if x)
    table = Table(columns, rows, "{:.2f}", "Percent.")
    return Exhibit(about, (table,), tuple(claims), not_run=not_run if laptop else "")


# Table 10: which recipe is best.


class Row(NamedTuple):
    model: str
    size: str
    recipe: str
    numbers: str

    @property
    def name(self) -> str:
        return f"{_of_size(self.model, self.size)}, {NAMES[self.recipe]}"


def _of_size(model: str, size: str) -> str:
    return f"{model} large" if size == "large" else model


SELECTION = (
    Row("BERT", "base", "m2_base", "67.70 84.63 64.33 89.99 89.80 92.51 86.69 89.62 60.42 82.25"),
    Row("BERT", "base", "modified", "67.70 83.09 58.27 89.35 89.88 92.16 86.56 87.78 55.02 80.26"),
    Row("LION-LIT", "base", "m2_base", "65.47 82.50 63.47 89.72 89.27 91.74 87.18 89.37 49.22 80.31"),
    Row("LION-LIT", "base", "modified", "65.47 80.88 54.95 88.80 88.83 91.32 85.42 87.07 46.98 78.03"),
    Row("LION-D", "base", "m2_base", "66.62 82.85 52.49 89.63 88.43 91.86 85.96 83.94 53.58 78.59"),
    Row("LION-D", "base", "modified", "66.62 80.52 52.85 88.93 88.36 91.55 82.05 84.48 49.13 77.23"),
    Row("LION-S", "base", "m2_base", "67.05 83.17 53.50 89.35 88.89 93.00 37.73 77.87 53.18 72.09"),
    Row("LION-S", "base", "modified", "67.05 78.14 56.39 88.68 88.52 92.39 51.22 77.60 49.75 72.84"),
    Row("BERT", "large", "m2_large", "69.88 84.97 69.10 31.59 49.15 91.93 53.61 87.87 51.16 64.92"),
    Row("BERT", "large", "modified", "69.88 85.68 67.44 89.90 91.89 93.04 88.63 90.89 56.14 82.95"),
    Row("Hydra", "large", "hydra", "71.18 84.24 60.44 89.24 89.73 91.70 88.21 88.99 47.72 80.03"),
    Row("Hydra", "large", "modified", "71.18 84.39 59.42 90.38 91.31 93.43 87.19 88.57 59.46 81.77"),
    Row("LION-LIT", "large", "m2_large", "67.11 83.20 54.51 89.08 84.90 90.44 68.57 85.25 23.35 72.41"),
    Row("LION-LIT", "large", "modified", "67.11 83.73 57.18 89.85 89.93 91.86 88.02 90.18 55.36 80.76"),
    Row("LION-D", "large", "m2_large", "68.64 83.82 52.85 41.48 53.67 91.13 36.87 82.41 45.79 61.00"),
    Row("LION-D", "large", "modified", "68.64 83.82 60.72 89.72 89.79 92.93 87.29 89.66 56.83 81.34"),
    Row("LION-S", "large", "m2_large", "69.16 83.71 50.04 38.81 53.98 91.59 36.98 82.29 50.27 60.96"),
    Row("LION-S", "large", "modified", "69.16 84.38 57.69 89.57 90.30 92.93 87.68 90.57 59.54 81.58"),
)


def _runs(row: Row, scale: ScaleName) -> tuple[Step, ...]:
    """At laptop scale there is one size; it stands for the paper's smaller one."""
    return pretraining(MODELS[row.model], row.size, scale) if scale == "paper" or row.size == "base" else ()


@register_exhibit(
    "table10",
    "Recipe selection for GLUE.",
    label="tab:ablation_glue_recipe",
    claim="M2-BASE is generally better than Modified at base size; at large size M2-LARGE fails, Modified does not.",
)
def table10(scale: ScaleName) -> Exhibit:
    rows = {row.name: cells(row.numbers, _runs(row, scale), row.recipe, scale) for row in SELECTION}

    def better(model: str, recipe: str, other: str) -> Callable[[Numbers], list[Value]]:
        a, b = (f"{model}, {NAMES[x]}" for x in (recipe, other))
        return lambda n: [n(a, AVERAGE).minus(n(b, AVERAGE))]

    claims = [
        Claim(f"{row}: M2-BASE is better than Modified", better(row, "m2_base", "modified")) for row in ("BERT", *LIONS)
    ]
    claims += [
        Claim(f"{row} large: Modified is better than M2-LARGE", better(f"{row} large", "modified", "m2_large"))
        for row in ("BERT", *LIONS)
    ]
    claims.append(Claim("Hydra large: Modified is better than Hydra", better("Hydra large", "modified", "hydra")))
    claims.append(
        above(MLM, *(f"{x}, M2-BASE" for x in ("BERT", "LION-S", "LION-D", "LION-LIT")),
              words="MLM accuracy at base size: BERT, LION-S, LION-D, LION-LIT, in this order")
    )  # fmt: skip
    not_run = f"{NO_GLUE} So no recipe is compared; and there is no large model."
    return _exhibit(scale, rows, claims, not_run=not_run)


# Table 11: all tasks, at base size by the recipes of BERT.

BASE = {
    "BERT": "67.23 84.26 59.21 89.87 90.24 92.35 88.12 90.24 56.76 81.38",
    "Hydra": "69.10 84.50 57.20 91.30 90.00 93.50 91.20 88.90 77.50 84.30",
    "LION-LIT": "65.08 82.37 55.81 89.49 89.57 91.74 86.27 88.25 44.46 78.50",
    "LION-D": "66.62 82.85 52.49 89.63 88.43 91.86 85.96 83.94 53.58 78.59",
    "LION-S": "66.19 82.50 57.47 89.38 87.88 92.70 82.42 82.46 53.39 78.40",
}
LARGE = {row.model: row.numbers for row in SELECTION if (row.size, row.recipe) == ("large", "modified")}
# Without positions, which BERT's recipe has, where decays tell the order.
WITHOUT = {"LION-D": ("--model.positions none",), "LION-S": ("--model.positions none",)}


def _by_berts_recipe(model: str, scale: ScaleName) -> tuple[Step, ...]:
    """BERT's own pretraining, with 15% of the tokens masked. Hydra's numbers are of its own paper, with 30%."""
    variant = MODELS[model]
    if model == "Hydra":
        return pretraining(variant, "base", scale)
    if scale == "paper":
        others = () if model == "BERT" else (f"--model.variant {variant}", *WITHOUT.get(model, ()))
        return seeds(1, "mlm.c4_bert_base", *others)
    return pretraining(variant, "base", scale, "--mask 0.15")


@register_exhibit(
    "table11",
    "Masked language modelling and GLUE at base and large size, task by task.",
    label="tab:MLM_small",
    claim="LION is close to BERT at both sizes.",
)
def table11(scale: ScaleName) -> Exhibit:
    rows = {}
    for model, numbers in BASE.items():
        recipe = "hydra" if model == "Hydra" else "bert24"
        rows[model] = cells(numbers, _by_berts_recipe(model, scale), recipe, scale)
    for model in BASE:
        runs = pretraining(MODELS[model], "large", scale)
        rows[f"{model} large"] = cells(LARGE[model], runs, "modified", scale)

    def close(size: str, column: str) -> Callable[[Numbers], list[Value]]:
        return lambda n: [n(f"{x}{size}", column).minus(n(f"BERT{size}", column)).minus(-3) for x in LIONS]

    def above_hydra(size: str, sign: int) -> Callable[[Numbers], list[Value]]:
        return lambda n: [n(f"{x}{size}", AVERAGE).minus(n(f"Hydra{size}", AVERAGE)).times(sign) for x in LIONS]

    claims = [
        *(Claim(f"{size}: all variants of LION are within 3 points of BERT, {name}", close(suffix, column))
          for size, suffix in (("base", ""), ("large", " large"))
          for name, column in (("MLM accuracy", MLM), ("GLUE", AVERAGE))),
        Claim("LION is below Hydra on GLUE at the larger scale", above_hydra(" large", -1)),
        Claim("LION is above Hydra on GLUE at the smaller scale", above_hydra("", 1)),
        *(above(MLM, *(f"{x}{suffix}" for x in ("LION-S", "LION-D", "LION-LIT")),
                words=f"{size}: MLM accuracy of LION-S is above LION-D's, and that above LION-LIT's")
          for size, suffix in (("base", ""), ("large", " large"))),
    ]  # fmt: skip
    words = (
        "Base size: BERT's own pretraining and BERT24, as the text says; the paper takes Hydra's row from Hydra's "
        "paper. Its row of LION-D at base size is that of table 10, number by number, whose pretraining is another."
    )
    if scale == "laptop":
        words = (
            "There is one size: the base rows have 15% of the tokens masked in training, as BERT's own pretraining "
            "(Hydra's has 30%), the large rows 30%."
        )
    return _exhibit(scale, rows, claims, words=words)
