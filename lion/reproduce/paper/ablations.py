"""Ablations of image classification: decays, features and positions, directions; and distillation."""

from collections.abc import Callable, Mapping, Sequence

from lion.reproduce.exhibits import (
    NOT_CONVERGED,
    Cell,
    Claim,
    Exhibit,
    Numbers,
    ScaleName,
    Table,
    Value,
    above,
    first_of,
    register_exhibit,
)
from lion.reproduce.paper.image_runs import CIFAR10, on_cifar10
from lion.reproduce.paper.images import ACCURACY
from lion.reproduce.readings import accuracy
from lion.reproduce.steps import Step, seeds, training

ABOUT = {
    "laptop": f"In place of CIFAR-100, {CIFAR10}.",
    "paper": "CIFAR-100: the tiny model on images of 224 pixels, 300 epochs as DeiT trains on ImageNet.",
}


def runs(change: str, scale: ScaleName) -> tuple[Step, ...]:
    """The runs of a model, "lion_s", or of an ablation, "ablation.fixed_decay", on CIFAR."""
    ablation = change.startswith("ablation.")
    if scale == "paper":
        return seeds(1, change if ablation else f"cifar100.{change}")
    return on_cifar10(f"{change}_cifar10" if ablation else f"cifar10.{change}")


def accuracies(printed: Mapping[str, tuple[float | str, str]], scale: ScaleName) -> Table:
    """Rows of the paper's number, and the model or the ablation that it is of."""
    rows = {row: [Cell(number, runs(change, scale), accuracy)] for row, (number, change) in printed.items()}
    return Table((ACCURACY,), rows, "{:.2f}")


FIXED, VECTOR, SCALAR = "fixed mask", "vector", "scalar, input dependent (LION-S)"


@register_exhibit(
    "table13",
    "Decays on CIFAR-100: fixed, or dependent on the input; a scalar for each head, or a vector.",
    label="tab:ablation_lambda",
    claim="Decays that depend on the input are better than fixed ones; a vector is not necessary.",
)
def table13(scale: ScaleName) -> Exhibit:
    printed: dict[str, tuple[float | str, str]] = {
        FIXED: (75.66, "ablation.fixed_decay"),
        VECTOR: (67.55, "ablation.vector_decay"),
        SCALAR: (77.56, "lion_s"),
    }
    claims = (
        above(ACCURACY, SCALAR, FIXED, words="input dependence is beneficial: a scalar is above a fixed mask"),
        above(ACCURACY, SCALAR, VECTOR, words="a vector is not necessary: a scalar is above it"),
    )
    about = (
        f"{ABOUT[scale]} All rows are LION-S, with its features, but for the decays. Fixed ones are learned, and begin "
        "as LION-D's."
    )
    return Exhibit(about, (accuracies(printed, scale),), claims)


EXTENSIVE: dict[str, tuple[float | str, str]] = {
    "[1] softmax, positions, nonlinearity": (73.88, "ablation.softmax_features"),
    "[2] softmax, positions (ViT-T)": (77.33, "softmax"),
    "[3] softmax, nonlinearity": (NOT_CONVERGED, "ablation.softmax_features_no_positions"),
    "[4] softmax": (73.15, "ablation.softmax_no_positions"),
    "[5] positions, nonlinearity (LION-LIT)": (73.61, "lion_lit"),
    "[6] positions": (68.54, "ablation.lit_identity"),
    "[7] nonlinearity": (65.28, "ablation.lit_no_positions"),
    "[8] none": (NOT_CONVERGED, "ablation.lit_identity_no_positions"),
    "mask, nonlinearity (LION-S)": (77.56, "lion_s"),
}


def _row(start: str) -> str:
    return next(row for row in EXTENSIVE if row.startswith(start))


def _pairs(*pairs: tuple[str, str]) -> Callable[[Numbers], list[Value]]:
    """The first of each is above the second; rows by their beginnings, "[1]"."""
    rows = [(_row(a), _row(b)) for a, b in pairs]
    return lambda n: [n(a, ACCURACY).minus(n(b, ACCURACY)) for a, b in rows]


@register_exhibit(
    "table14",
    "Softmax, positions and nonlinearity on CIFAR-100, with and without.",
    label="tab:ablation_extensive",
    claim="Either nonlinearity or softmax is essential; positions help, and a mask can replace them.",
)
def table14(scale: ScaleName) -> Exhibit:
    claims = (
        Claim(
            "either nonlinearity or softmax is essential: with positions, each alone is above neither",
            _pairs(("[2]", "[6]"), ("[5]", "[6]")),
        ),
        Claim(
            "either nonlinearity or softmax is essential: without positions, each alone is above neither",
            _pairs(("[4]", "[8]"), ("[7]", "[8]")),
        ),
        Claim("positions boost the accuracy of softmax", _pairs(("[1]", "[3]"), ("[2]", "[4]"))),
        Claim("positions boost the accuracy of linear attention", _pairs(("[5]", "[7]"), ("[6]", "[8]"))),
        Claim("a mask can replace positions: LION-S is above LION-LIT with positions", _pairs(("mask", "[5]"))),
    )
    about = (
        f"{ABOUT[scale]} Nonlinearity: of queries and keys; elu + 1 in LION-LIT, and a SiLU of unit length "
        "with softmax, as in LION-S. Without it, linear attention is not normalised: its weights have both signs."
    )
    return Exhibit(about, (accuracies(EXTENSIVE, scale),), claims)


ONE_SCAN = {
    "LION-S (forward)": (71.08, "ablation.lion_s_forward"),
    "LION-S (reverse)": (69.61, "ablation.lion_s_reverse"),
    "LION-S (forward-reverse)": (73.93, "ablation.lion_s_alternating"),
    "LION-S (bi-directional)": (77.56, "ablation.lion_s_both"),
}
TWO_SCANS = {
    "LION-S 2 scans (forward)": (70.24, "ablation.lion_s_2scan_forward"),
    "LION-S 2 scans (reverse)": (70.42, "ablation.lion_s_2scan_reverse"),
    "LION-S 2 scans (bi-directional)": (80.07, "ablation.lion_s_2scan_both"),
}
UP_TO = 8.0  # points at least, where the paper says "up to 10 %"


@register_exhibit(
    "table16",
    "Directions of the walks on CIFAR-100, with one scan and with two.",
    label="tab:forward",
    claim="Both directions by turns are about 4 points better than one, both in every block up to 10 points.",
)
def table16(scale: ScaleName) -> Exhibit:
    forward, reverse, turns, both = ONE_SCAN
    *one_way, both_scanned = TWO_SCANS
    claims = (
        first_of(ACCURACY, turns, (forward, reverse), "both directions, by turns, are above one"),
        first_of(ACCURACY, both, (turns, forward, reverse), "both directions in every block are above all others"),
        first_of(ACCURACY, both_scanned, one_way, "2 scans: both directions are above one"),
        Claim(
            f"2 scans: both directions are up to 10 points above one ({UP_TO:g} or more)",
            lambda n: [n(both_scanned, ACCURACY).minus(_least([n(row, ACCURACY) for row in one_way])).minus(UP_TO)],
        ),
    )
    about = (
        f"{ABOUT[scale]} No row has a class token, and the mean of the patches is classified: going forward, a first "
        "token sees no other. So the bi-directional row is not the LION-S of Tables 13 and 14. The paper's backward is "
        "our reverse."
    )
    not_run = (
        "a sum in which every token counts itself twice. The paper's text refers to this table for it, but there is no "
        "such row; `ablation.double_diagonal` is that model."
    )
    return Exhibit(about, (accuracies({**ONE_SCAN, **TWO_SCANS}, scale),), claims, not_run=not_run)


def _least(values: Sequence[Value]) -> Value:
    return min(values, key=lambda x: x.mean)


STUDENT, VIT, DISTILLED = "LION-S", "ViT-Tiny", "LION-S (distilled)"
DEIT_TEACHER = "--distill.teacher lion.integrations.timm:deit_teacher"
TEACHER = "the teacher, a convolutional network"
TEACHING = {
    "laptop": (
        f"{CIFAR10}. The paper's teacher is a RegNet, a convolutional network, trained on the student's images. Ours "
        "is a small one: six convolutional layers (305,000 parameters), trained on CIFAR-10 as its students are, for 3 "
        "epochs. A distillation token learns its decisions, which are half of the loss; the classifiers of both tokens "
        "are averaged."
    ),
    "paper": (
        "ImageNet as DeiT trains it, 300 epochs, the tiny models. The teacher is DeiT's own RegNetY-16GF, from timm "
        "(`regnety_160.deit_in1k`); the paper does not say which RegNet it took. A distillation token learns its "
        "decisions, which are half of the loss; the classifiers of both tokens are averaged."
    ),
}


@register_exhibit(
    "table15",
    "Distillation of a convolutional network into LION-S, as DeiT does it.",
    label="tab:destill",
    claim="LION-S that learns from a RegNet is more accurate than the original ViT-Tiny.",
)
def table15(scale: ScaleName) -> Exhibit:
    rows = {}
    if scale == "paper":
        # Given again, so that an interrupted run goes on: it takes no function from its file.
        distilled = seeds(1, "distill.imagenet_lion_s_tiny", DEIT_TEACHER)
        plain = {STUDENT: seeds(1, "imagenet.lion_s_tiny"), VIT: seeds(1, "imagenet.softmax_tiny")}
    else:
        teacher = training("distill.cifar10_teacher", minutes=4)
        distilled = on_cifar10("distill.cifar10_lion_s", "--distill.teacher", teacher, minutes=3)
        plain = {STUDENT: runs("lion_s", scale), VIT: runs("softmax", scale)}
        rows[TEACHER] = [Cell(None, (teacher,), accuracy)]
    rows |= {
        STUDENT: [Cell(67.95, plain[STUDENT], accuracy)],
        VIT: [Cell(70.23, plain[VIT], accuracy)],
        DISTILLED: [Cell(70.44, distilled, accuracy)],
    }
    claims = (
        above(ACCURACY, DISTILLED, VIT, words="LION-S that was distilled is above ViT-Tiny"),
        above(ACCURACY, DISTILLED, STUDENT, words="LION-S that was distilled is above LION-S that was not"),
    )
    not_run = (
        "the first two rows as the paper has trained them. Its LION-S (67.95) is not that of Table 12 (72.4), which is "
        "above the distilled one; its ViT-Tiny is the ViT of Table 12 (70.2), by an older recipe than DeiT's (72.2). "
        "Here all rows are trained alike."
    )
    return Exhibit(TEACHING[scale], (Table((ACCURACY,), rows, "{:.2f}"),), claims, not_run=not_run)
