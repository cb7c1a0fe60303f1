"""Layers whose sequence is cut over processes: outputs and gradients are those of one process."""

import pytest

from lion.nn.variants import VARIANTS
from tests.parallel import cases

LINEAR = [name for name, variant in VARIANTS.items() if not variant.softmax]
AGREEMENT = 64  # bytes, once for each call of a model, whether all call it alike
SETTINGS = [
    *((name, {"direction": direction}) for name in LINEAR for direction in ("both", "forward", "reverse")),
    *((name, {"two_sided": True}) for name in LINEAR if VARIANTS[name].decay != "none"),
    *(("lion_s", {"norm": norm}) for norm in ("max", "none")),
    ("lion_s", {"double_diagonal": True}),
    ("rwkv6", {"decay": "fixed"}),
    ("gated_deltanet", {"decay": "fixed"}),
]


@pytest.mark.parametrize(
    ("ranks", "kind", "masked"),
    [(2, "even", True), (3, "empty first", False), (3, "even", False), (4, "empty last", True)],
)
def test_pieces_are_the_whole(processes, ranks, kind, masked):
    for found in processes.run(cases.layers, SETTINGS, 23, kind, masked, ranks=ranks):
        assert len(found) == len(SETTINGS)
        worst = max(found, key=found.get)
        assert found[worst][0] <= 1e-12, (worst, found[worst])


def test_float32_is_as_exact_as_in_one(processes):
    for found in processes.run(cases.in_float32, LINEAR, 150, ranks=2):
        for variant, (pieces, one) in found.items():
            assert all(x <= 2 * y + 1e-6 for x, y in zip(pieces, one, strict=True)), (variant, pieces, one)


@pytest.mark.parametrize(("variant", "extra"), [("lion_lit", 0), ("lion_s", 0), ("gla", 0), ("xlstm", 1)])
def test_two_collectives_whose_size_does_not_depend_on_the_length(processes, variant, extra):
    B, H, D, V = 3, 2, 16, 16
    channels = D if variant == "gla" else 1
    state = B * H * (D * V + D + channels * (1 + extra))  # sums, keys, what crossing costs, and its scale with gates
    for rank in processes.run(cases.collectives, variant, (8, 64), {}, ranks=2):
        for forward, backward in rank:
            assert forward == [AGREEMENT, 2 * 4 * state]  # both directions, in float32
            assert backward == forward[1:]


def test_one_direction_sends_half(processes):
    for rank in processes.run(cases.collectives, "lion_s", (8,), {"direction": "forward"}, ranks=2):
        state = 4 * 3 * 2 * (16 * 16 + 16 + 1)
        assert rank == [([AGREEMENT, state], [state])]


REFUSED = {
    "softmax": "LionAttention: variant 'softmax' has no state but its tokens.",
    "orders": "LionAttention: other orders cross the pieces' borders many times.",
    "image model": "VisionModel: the convolutions of stem='conv' see the pixels of other pieces.",
    "no attention": "there is no LionAttention in this Linear.",
    "mesh": "expected one of them: mesh['sequence'].",
    "no mesh": "mesh is a int; expected a process group, or one dimension of a DeviceMesh: mesh['sequence'].",
    "settings": "process 1 has another model (LionAttention) than process 0 (LionAttention); expected the same",
    "batch": "batch size: 3 on process 1 of the sequence, 2 on process 0; expected the same on all",
    "dtype": "dtype: bfloat16 on process 1 of the sequence, float32 on process 0",
    "gradients": "gradients: False on process 1 of the sequence, True on process 0",
    "packed": "cu_seqlens is given, and the layer has a piece of a sequence",
}


@pytest.mark.parametrize("case", REFUSED)
def test_bad_input_is_refused_by_all(processes, case):
    for said in processes.run(cases.refused, case, ranks=2):
        assert REFUSED[case] in said


def test_compiled_and_in_bfloat16(processes):
    for compiled, low in processes.run(cases.autocast_and_compiled, ranks=2):
        assert compiled <= 1e-6
        assert low <= 0.02
