"""Every operator of `torch.ops.lion`: a random call that is valid, which calls are, and what one should return.

`fits` is written from the operators' documentation, not from their checks: it is what those are held against.
"""

import functools
import itertools
from collections.abc import Callable, Sequence
from random import Random
from typing import Any, NamedTuple

import torch
from torch import Tensor

from lion.ops.cpu import delta as cpu_delta
from lion.ops.cpu import features, projected, scan
from lion.ops.cpu import selective as cpu_selective
from lion.ops.cpu.library import NO_OUTPUT, NONE, RAW
from lion.ops.cpu.problem import Arguments as Scan
from lion.ops.torch import delta, dense
from lion.ops.torch.options import Options
from tests.ops.problems import permutations

Arguments = dict[str, Any]  # by the names of the schema, in its order
FLOATS = (torch.float64, torch.float32, torch.bfloat16, torch.float16)
COMPILED = FLOATS[:3]
DIRECTIONS = {1: "forward", 2: "reverse", 3: "both"}
MAX_TOKENS = 2**31 - 1
WANTED = ("log_decay", "log_decay_reverse", "log_gain", "self_weight")
HOW = ("norm", "direction", "chunk_size")
OPTIONS = ("direction", "include_self", "with_den", "chunk_size")
PROJECTED = projected.Projected._fields
OF_PROJECTED = ("y", "log_decay", "log_decay_reverse", "self_weight")  # differentiable


class Operator(NamedTuple):
    valid: Callable[[Random], Arguments]
    fits: Callable[[Arguments], bool]
    reference: Callable[[Arguments], list[Tensor | None]]  # None: not to be compared


def sums(*tensors: Tensor) -> torch.dtype:
    return torch.float64 if any(x.dtype == torch.float64 for x in tensors) else torch.float32


# Which calls are valid. A rule is the shapes that a tensor may have, by letters (a small one: or 1), and its dtypes.

SAME, SUMS, FLOAT, BOOL, COUNT = "as the first", "to sum in", "floating point", "bool", "int32 or int64"


class Rule(NamedTuple):
    shapes: str
    dtype: str = SAME
    optional: bool = False


def shapes_fit(
    arguments: Arguments, rules: dict[str, Rule], dtypes=COMPILED, sizes: dict[str, int] | None = None
) -> bool:
    first = arguments[next(iter(rules))]
    sizes = {} if sizes is None else sizes
    kinds = {
        SAME: (first.dtype,) if first.dtype in dtypes else (),
        SUMS: (sums(first),),
        FLOAT: FLOATS,
        BOOL: (torch.bool,),
        COUNT: (torch.int32, torch.int64),
    }
    for name, rule in rules.items():
        x = arguments[name]
        if x is None and rule.optional:
            continue
        if x is None or x.layout != torch.strided or x.is_nested or x.device != first.device:
            return False
        if x.dtype not in kinds[rule.dtype] or not any(shape_fits(x, shape, sizes) for shape in rule.shapes.split("|")):
            return False
    return True


def shape_fits(x: Tensor, letters: str, sizes: dict[str, int]) -> bool:
    if x.dim() != len(letters):
        return False
    found = dict(sizes)
    for letter, size in zip(letters, x.shape, strict=True):
        if letter == "G":  # the heads of all orders
            want = found["H"] * found.get("N", 1)
        elif letter.isdigit():
            want = int(letter)
        else:
            want = 1 if letter.islower() and size == 1 else found.setdefault(letter.upper(), size)
        if want != size:
            return False
    sizes.update(found)
    return True


def tokens_fit(x: Arguments, T: int) -> bool:
    """The values of cu_seqlens and orders."""
    borders = [0, T] if x["cu_seqlens"] is None else x["cu_seqlens"].tolist()
    if borders[0] != 0 or borders[-1] != T or any(a > b for a, b in itertools.pairwise(borders)):
        return False
    orders = [] if x["orders"] is None else torch.atleast_2d(x["orders"]).tolist()
    pieces = [(order[a:b], range(a, b)) for order in orders for a, b in itertools.pairwise(borders)]
    return all(sorted(piece) == list(whole) for piece, whole in pieces)


# cpu_scan and cpu_scan_backward

OF_TOKENS = {
    "mask": Rule("BT", BOOL, True),
    "cu_seqlens": Rule("S", COUNT, True),
    "orders": Rule("NT|T", COUNT, True),
    "log_decay": Rule("H|HD|BTH|BTHD|G|GD|BTG|BTGD", FLOAT, True),
    "log_decay_reverse": Rule("H|HD|BTH|BTHD|G|GD|BTG|BTGD", FLOAT, True),
    "self_weight": Rule("H|HD|BTH|BTHD", FLOAT, True),
}
SCAN = {"q": Rule("BTHD"), "k": Rule("BTHD"), "v": Rule("BTHV"), "log_gain": Rule("BTH", FLOAT, True)} | OF_TOKENS


STATE = {"sums": Rule("BHDV", SUMS), "keys": Rule("BHD", SUMS), "log_scale": Rule("BH1", SUMS)}


def states_fit(x: Arguments) -> bool:
    """Either of the two states may be given, if there is such a walk; with gates it has a scale."""
    given, asked = x["states"], x["return_states"]
    if x["norm"] == NO_OUTPUT and (x["self_weight"] is not None or not asked):
        return False
    if not (given or asked):
        return True
    if x["orders"] is not None or x["cu_seqlens"] is not None or x["norm"] == RAW or len(given) not in (0, 6):
        return False
    for way in (1, 2) if given else ():
        if not all(isinstance(y, Tensor) for y in given):
            return False
        parts = dict(zip(STATE, (None if y.shape == (0,) else y for y in given[3 * (way - 1) :]), strict=False))
        if parts["sums"] is None:
            fits = parts["keys"] is None and parts["log_scale"] is None
        else:
            scaled = (parts["log_scale"] is not None) == (x["log_gain"] is not None)
            fits = bool(way & x["direction"]) and scaled and parts_fit(x, parts)
        if not fits:
            return False
    return True


def parts_fit(x: Arguments, parts: Arguments) -> bool:
    there = {name: y for name, y in parts.items() if y is not None or name == "keys"}
    rules = {"q": Rule("BTHD"), "v": Rule("BTHV")} | {name: STATE[name] for name in there}
    tensors = all(isinstance(y, Tensor) for y in there.values())
    return tensors and shapes_fit({"q": x["q"], "v": x["v"]} | there, rules)


def scan_fits(x: Arguments, norms=range(5)) -> bool:
    if not shapes_fit(x, SCAN) or not states_fit(x):
        return False
    q, log_decay, cu_seqlens, orders = x["q"], x["log_decay"], x["cu_seqlens"], x["orders"]
    B, T, _, D = q.shape
    diagonal = log_decay is not None and log_decay.dim() in (2, 4)
    reverse = x["log_decay_reverse"]
    if reverse is not None and (log_decay is None or heads_and_kind(reverse) != heads_and_kind(log_decay)):
        return False
    packed = cu_seqlens is None or (B == 1 and len(cu_seqlens) > 1)
    numbers = x["norm"] in norms and x["direction"] in DIRECTIONS and 0 <= x["chunk_size"] <= MAX_TOKENS
    ordered = orders is None or len(torch.atleast_2d(orders)) > 0
    if x["gates_absorbed"] and not diagonal:
        return False
    if x["decay_between"] and not (diagonal and x["norm"] == NONE):
        return False
    if not (numbers and D > 0 and packed and ordered and not (diagonal and x["log_gain"] is not None)):
        return False
    return q.is_meta or (tokens_fit(x, T) and values_fit(x))


def heads_and_kind(log_decay: Tensor) -> tuple[int, int]:
    diagonal = log_decay.dim() % 2 == 0
    return log_decay.shape[-2 if diagonal else -1], diagonal


def values_fit(x: Arguments) -> bool:
    B, T, H, _ = x["q"].shape
    real = torch.ones(B, T, dtype=torch.bool) if x["mask"] is None else x["mask"]
    for name, most in (("log_decay", 0.0), ("log_decay_reverse", 0.0), ("log_gain", torch.finfo(torch.float64).max)):
        if x[name] is None or not real.any() or not H:
            continue
        values = x[name].to(sums(x["q"]))
        values = values[real] if values.dim() > 2 else values
        if not (values <= most).all():
            return False
    return True


def scan_call(random: Random) -> Arguments:
    sizes = {"B": random.choice((1, 1, 2)), "T": random.choice((0, 1, 3, 7, 40)), "H": random.choice((1, 2, 3))}
    B, T, H = sizes.values()
    D, V = random.choice((1, 3, 8, 17)), random.choice((0, 1, 4, 8, 16))
    dtype, maybe = random.choice(COMPILED), lambda: random.random() < 0.4
    q, k = (torch.rand(B, T, H, D).to(dtype) + 0.1 for _ in range(2))
    x: Arguments = {"q": q, "k": k, "v": torch.randn(B, T, H, V).to(dtype)}
    kind = random.choice(((), (H,), (H, D), (B, T, H), (B, T, H, D)))
    x["log_decay"] = -torch.rand(kind).to(sums(q)) if kind else None
    fixed, per_token = ((H,), (B, T, H)) if len(kind) % 2 else ((H, D), (B, T, H, D))
    x["log_decay_reverse"] = -torch.rand(random.choice((fixed, per_token))) if kind and maybe() else None
    x["log_gain"] = torch.randn(B, T, H).to(sums(q)) if maybe() and len(kind) in (0, 1, 3) else None
    x["self_weight"] = torch.rand(random.choice(((H,), (H, D), (B, T, H)))) if maybe() else None
    x["mask"] = torch.rand(B, T) > 0.3 if maybe() else None
    x["cu_seqlens"] = torch.tensor([0, T // 2, T]) if B == 1 and maybe() else None
    x["orders"] = permutations(T, random.choice((1, 2)), x["cu_seqlens"]) if maybe() else None
    x |= {"norm": random.choice((0, 1, 1, 2, 3)), "direction": random.choice((1, 2, 3, 3))}
    x |= {"chunk_size": random.choice((0, 0, 1, 5, 64)), "wide": maybe()}
    x["decay_between"] = x["norm"] == NONE and len(kind) in (2, 4) and maybe()
    x |= {"gates_absorbed": len(kind) in (2, 4) and maybe(), "states": [], "return_states": False}
    return with_states(x, random) if random.random() < 0.5 else x


def with_states(x: Arguments, random: Random) -> Arguments:
    B, _, H, D = x["q"].shape
    norm = NONE if x["decay_between"] else random.choice((0, 1, 2, NO_OUTPUT))
    x |= {"cu_seqlens": None, "orders": None, "norm": norm, "return_states": True}
    if x["norm"] == NO_OUTPUT:
        x |= {"self_weight": None, "wide": False}
    else:
        x["return_states"] = random.random() < 0.7
    for way in (1, 2) if random.random() < 0.7 else ():
        parts = [torch.empty(0)] * 3
        if way & x["direction"] and random.random() < 0.8:
            sizes = (B, H, D, x["v"].shape[3]), (B, H, D), (B, H, 1)
            parts = [torch.rand(size).to(sums(x["q"])) for size in sizes]
            parts[2] = parts[2] if x["log_gain"] is not None else torch.empty(0)
        x["states"] = x["states"] + parts
    return x


def scan_reference(x: Arguments) -> list[Tensor | None]:
    double = {name: y.double() if isinstance(y, Tensor) and y.is_floating_point() else y for name, y in x.items()}
    double["states"] = [y.double() for y in x["states"]]
    out, den, *states = scan.plainly_computed(Scan(**double))
    if x["norm"] == RAW and x["log_gain"] is not None:
        return [None, None]  # each at a scale of the kernel's own
    return [out, den if x["norm"] == RAW else None, *states]


def backward_call(operator: str, x: Arguments, names: dict[str, int]) -> Arguments:
    """Before the arguments of a forward call, its results and their gradients: by name, which of the results."""
    results = call(operator, x)
    random = {name: torch.randn_like(results[i]) for name, i in names.items() if name[0] == "d" and name != "den"}
    return {name: random.get(name, results[i]) for name, i in names.items()} | x


def scan_backward_call(random: Random) -> Arguments:
    x = backward_call("cpu_scan", scan_call(random), {"dout": 0, "dden": 1, "out": 0, "den": 1})
    x["dden"] = x["dden"] if x["norm"] == RAW else None
    left = call("cpu_scan", {name: y for name, y in x.items() if name in Scan._fields})[2:]
    dstates = [None if i % 3 == 2 or random.random() < 0.2 else torch.randn_like(y) for i, y in enumerate(left)]
    first = {name: x.pop(name) for name in ("dout", "dden", "out", "den")}
    x = first | {"dstates": dstates} | x
    return x | {"wanted": [x[name] is not None and random.random() < 0.8 for name in WANTED]}


def scan_backward_fits(x: Arguments) -> bool:
    if not scan_fits(x):
        return False
    B, T, H, _ = x["q"].shape
    raw, sizes = x["norm"] == RAW, {"B": B, "T": T, "H": H, "V": x["v"].shape[3]}
    of_den = "0" if x["norm"] in (NONE, NO_OUTPUT) else "2BTH" if raw and x["log_gain"] is not None else "BTH"
    of_out = Rule("0" if x["norm"] == NO_OUTPUT else "BTHV", SUMS if x["wide"] else SAME)
    walks = {3: 2}.get(x["direction"], 1) if x["return_states"] else 0
    if len(x["dstates"]) != 3 * walks or not all(isinstance(y, Tensor | None) for y in x["dstates"]):
        return False
    of_states = zip(list(STATE) * walks, x["dstates"], strict=True)
    if not all(grad is None or name == "log_scale" or grad_fits(x, name, grad) for name, grad in of_states):
        return False
    rules = {"q": Rule("BTHD"), "dout": of_out, "out": of_out, "den": Rule(of_den, SUMS)}
    rules |= {"dden": Rule(of_den, SUMS)} if raw else {}
    return shapes_fit(x, rules, sizes=sizes) and (raw or x["dden"] is None) and wanted_fits(x, WANTED)


def grad_fits(x: Arguments, name: str, grad: Tensor) -> bool:
    rules = {"q": Rule("BTHD"), "v": Rule("BTHV"), name: STATE[name]}
    return shapes_fit({"q": x["q"], "v": x["v"], name: grad}, rules)


def wanted_fits(x: Arguments, names: Sequence[str]) -> bool:
    given = [x[name] is not None for name in names]
    return len(x["wanted"]) == len(given) and not any(
        want and not there for want, there in zip(x["wanted"], given, strict=True)
    )


def gradients(
    function: Callable, inputs: Sequence[Tensor | None], grads: Sequence[Tensor | None]
) -> list[Tensor | None]:
    """Of the inputs, in double precision."""
    leaves = [None if x is None else x.detach().double().requires_grad_() for x in inputs]
    outputs = zip(function(*leaves), grads, strict=True)
    total = sum(((y * dy.double()).sum() for y, dy in outputs if y is not None and dy is not None), torch.zeros(()))
    wanted = [x for x in leaves if x is not None]
    if not total.requires_grad:
        return [x if x is None else torch.zeros_like(x) for x in leaves]
    found = iter(torch.autograd.grad(total, wanted, allow_unused=True, materialize_grads=True))
    return [x if x is None else next(found) for x in leaves]


def scan_backward_reference(x: Arguments) -> list[Tensor | None]:
    if x["norm"] == RAW and x["log_gain"] is not None:
        return [None] * 7
    call = Scan(**{name: x[name] for name in Scan._fields})
    names = ("q", "k", "v", *WANTED)
    wanted = dict(zip(names, [x["norm"] != NO_OUTPUT, True, True, *x["wanted"]], strict=True))

    def function(*y):
        return scan.plainly_computed(call._replace(**dict(zip(names, y[:7], strict=True)), states=y[7:]))

    grads = [None if x["norm"] == NO_OUTPUT else x["dout"], x["dden"], *x["dstates"]]
    found = gradients(function, [*(x[name] for name in names), *x["states"]], grads)
    return [*(grad if wanted[name] else None for name, grad in zip(names, found[:7], strict=True)), *found[7:]]


# cpu_features, cpu_projected and their backward passes


def features_call(random: Random) -> Arguments:
    B, T, H, D = (
        random.choice((1, 2)),
        random.choice((0, 1, 7, 70)),
        random.choice((1, 3)),
        random.choice((1, 3, 8, 33)),
    )
    dtype = random.choice(COMPILED)
    return {name: torch.randn(B, T, H, D).to(dtype) for name in "qk"} | {"map": random.choice((0, 1))}


def features_fit(x: Arguments) -> bool:
    each = [{name: x[name]} for name in "qk"]  # q and k need not have much in common
    return (
        all(shapes_fit(y, dict.fromkeys(y, Rule("BTHD"))) for y in each)
        and x["q"].device == x["k"].device
        and x["map"] in features.PLAIN
    )


def features_reference(x: Arguments) -> list[Tensor | None]:
    return [features.PLAIN[x["map"]](x[name].double()) for name in "qk"]


def features_backward_fits(x: Arguments) -> bool:
    pairs = ({"q": x["q"], "dq": x["dq"]}, {"k": x["k"], "dk": x["dk"]})
    return features_fit(x) and all(shapes_fit(y, dict.fromkeys(y, Rule("BTHD"))) for y in pairs)


def features_backward_reference(x: Arguments) -> list[Tensor | None]:
    function = features.PLAIN[x["map"]]
    return gradients(lambda *y: [function(z) for z in y], [x["q"], x["k"]], [x["dq"], x["dk"]])


def projected_call(random: Random) -> Arguments:
    x = scan_call(random)
    B, T, H, D = x["q"].shape
    y = torch.randn(B, T, 3 * H * D + random.choice((0, 5))).to(x["q"].dtype)
    x["norm"] = 1 if x["norm"] == NO_OUTPUT else x["norm"]
    kept = {name: x[name] for name in PROJECTED[1:7]}
    how = {"heads": H, "channels": D, "map": random.choice((0, 1, projected.NO_MAP)), "norm": random.choice((0, 1, 2))}
    return {"y": y} | kept | how | {name: x[name] for name in ("direction", "chunk_size", "wide")}


def as_scan(x: Arguments) -> Arguments:
    q, k, v = projected.Projected(**{name: x[name] for name in PROJECTED}).heads_of(x["y"])
    states = {"log_gain": None, "decay_between": False, "gates_absorbed": False, "states": [], "return_states": False}
    return {"q": q, "k": k, "v": v} | states | {name: x[name] for name in (*OF_TOKENS, *HOW)}


def projected_fits(x: Arguments) -> bool:
    y, heads, channels = x["y"], x["heads"], x["channels"]
    if y.dim() != 3 or not (0 < heads < 1 << 20 and 0 < channels < 1 << 20) or y.shape[2] < 3 * heads * channels:
        return False
    fits = shapes_fit({"y": y}, {"y": Rule("BTC")}) and x["map"] in (*features.PLAIN, projected.NO_MAP)
    return fits and scan_fits(as_scan(x), norms=range(3))


def projected_plainly(x: Arguments, *tensors: Tensor | None) -> list[Tensor | None]:
    given = dict(zip(OF_PROJECTED, tensors, strict=True))
    return projected.plainly_computed(projected.Projected(**({name: x[name] for name in PROJECTED} | given)))


def projected_reference(x: Arguments) -> list[Tensor | None]:
    double = (None if x[name] is None else x[name].double() for name in OF_PROJECTED)
    return [*projected_plainly(x, *double), None, None]


def projected_backward_call(random: Random) -> Arguments:
    x = backward_call("cpu_projected", projected_call(random), {"dout": 0, "out": 0, "den": 1, "features": 2})
    return x | {"wanted": [x[name] is not None for name in OF_PROJECTED[1:]]}


def projected_backward_fits(x: Arguments) -> bool:
    if not projected_fits(x):
        return False
    (B, T, _), H, D = x["y"].shape, x["heads"], x["channels"]
    of_out = Rule("BTHD", SUMS if x["wide"] else SAME)
    rules = {"y": Rule("BTC"), "dout": of_out, "out": of_out, "den": Rule("0" if x["norm"] == 0 else "BTH", SUMS)}
    rules |= {"features": Rule("0" if x["map"] == projected.NO_MAP else "BT2HD")}
    return shapes_fit(x, rules, sizes={"B": B, "T": T, "H": H, "D": D}) and wanted_fits(x, OF_PROJECTED[1:])


def projected_backward_reference(x: Arguments) -> list[Tensor | None]:
    inputs = [x[name] for name in OF_PROJECTED]
    dy, *others = gradients(functools.partial(projected_plainly, x), inputs, [x["dout"]])
    return [dy, *(grad if want else None for grad, want in zip(others, x["wanted"], strict=True))]


# scan and scan_backward, in torch

TORCH_SCAN = {"q": Rule("BTHD"), "k": Rule("BTHD", FLOAT), "v": Rule("BTHV", FLOAT)}


def torch_scan_call(random: Random) -> Arguments:
    B, T, H = random.choice((1, 2)), random.choice((0, 1, 7, 150)), random.choice((1, 2))
    D, V = random.choice((1, 4)), random.choice((0, 1, 5))
    q, k, v = (torch.rand(B, T, H, n).to(random.choice(FLOATS[1:])) for n in (D, D, V))
    cost = [random.choice((1, n)) for n in (B, T, H, D)]
    x = {"q": q, "k": k, "v": v, "f": -torch.rand(cost), "b": -torch.rand(cost)}
    if random.random() < 0.5:
        x = {name: y.double() for name, y in x.items()}
    x |= {"direction": random.choice(tuple(DIRECTIONS.values())), "include_self": random.random() < 0.5}
    return x | {"with_den": random.random() < 0.5, "chunk_size": random.choice((None, 1, 20, MAX_TOKENS))}


def torch_scan_fits(x: Arguments) -> bool:
    sizes: dict[str, int] = {}
    if not shapes_fit(x, TORCH_SCAN, FLOATS, sizes) or not sizes["D"]:
        return False
    dtype, rule = sums(x["q"], x["k"], x["v"]), {"f": Rule("bthd"), "b": Rule("bthd")}
    costs = x["f"].dtype == dtype and x["f"].shape == x["b"].shape and x["f"].device == x["q"].device
    chunk_fits = x["chunk_size"] is None or 0 < x["chunk_size"] <= MAX_TOKENS
    return costs and shapes_fit(x, rule, FLOATS, sizes) and chunk_fits and x["direction"] in DIRECTIONS.values()


def torch_scan_plainly(x: Arguments, *tensors: Tensor) -> list[Tensor | None]:
    options = Options(x["direction"], x["include_self"], x["with_den"], None)
    q, k, v, f, b = tensors
    B, T, H, _ = q.shape
    num, den = dense.rnn(q, k, v, *(y.expand(B, T, H, -1) for y in (f, b)), options)
    return [num, num[..., :0] if den is None else den]


def torch_scan_reference(x: Arguments) -> list[Tensor | None]:
    return torch_scan_plainly(x, *(x[name].double() for name in "qkvfb"))


def torch_scan_backward_call(random: Random) -> Arguments:
    x = torch_scan_call(random)
    both = backward_call("scan", x, {"dnum": 0, "dden": 1})
    inputs = {name: x[name] for name in "qkvfb"}
    return inputs | {name: both[name] for name in ("dnum", "dden")} | {name: x[name] for name in OPTIONS}


def torch_scan_backward_fits(x: Arguments) -> bool:
    if not torch_scan_fits(x):
        return False
    B, T, H, V = x["v"].shape
    rules = {"f": Rule("bthd"), "dnum": Rule("BTHV"), "dden": Rule(f"BTH{int(x['with_den'])}")}
    return shapes_fit(x, rules, sizes={"B": B, "T": T, "H": H, "V": V, "D": x["q"].shape[3]})


def torch_scan_backward_reference(x: Arguments) -> list[Tensor | None]:
    return gradients(functools.partial(torch_scan_plainly, x), [x[name] for name in "qkvfb"], [x["dnum"], x["dden"]])


# decayed_scores and decayed_scores_backward


def scores_call(random: Random) -> Arguments:
    B, H, C, D = random.choice((1, 2)), random.choice((1, 3)), random.choice((0, 1, 6)), random.choice((1, 4))
    dtype, cost = random.choice(FLOATS[:2]), (random.choice((1, B)), random.choice((1, H)), C, random.choice((1, D)))
    x = {"q": torch.rand(B, H, C, D), "k": torch.rand(B, H, C, D), "f": -torch.rand(cost), "b": -torch.rand(cost)}
    x = {name: y.to(dtype) for name, y in x.items()}
    return x | {"direction": random.choice(tuple(DIRECTIONS.values())), "include_self": random.random() < 0.5}


def scores_fit(x: Arguments) -> bool:
    """With any number of dimensions before C."""
    q, n = x["q"], x["q"].dim() - 2
    if n < 1 or q.dtype not in FLOATS[:2] or x["f"].shape != x["b"].shape or x["direction"] not in DIRECTIONS.values():
        return False
    lead = "EFGHIJKLM".replace("G", "")[:n]
    rules = {name: Rule(f"{lead if name in 'qk' else lead.lower()}C{'D' if name in 'qk' else 'd'}") for name in "qkfb"}
    return shapes_fit(x, rules, FLOATS) and q.shape[-1] > 0


def scores_plainly(x: Arguments, q: Tensor, k: Tensor, f: Tensor, b: Tensor) -> list[Tensor | None]:
    """One pair of tokens after the other."""
    C, rows = q.shape[-2], []
    f, b = (y.expand(*q.shape[:-1], -1) for y in (f, b))
    for i, j in itertools.product(range(C), range(C)):
        steps = f[..., j:i, :] if j < i else b[..., i + 1 : j + 1, :]
        reached = {"both": i != j, "forward": j < i, "reverse": j > i}[x["direction"]] or (i == j and x["include_self"])
        rows.append((q[..., i, :] * k[..., j, :] * steps.sum(-2).exp()).sum(-1) * reached)
    return [torch.stack(rows, -1).unflatten(-1, (C, C)) if rows else q.new_zeros(*q.shape[:-1], C)]


def scores_reference(x: Arguments) -> list[Tensor | None]:
    return scores_plainly(x, *(x[name].double() for name in "qkfb"))


def scores_backward_call(random: Random) -> Arguments:
    x = scores_call(random)
    grad = backward_call("decayed_scores", x, {"dscores": 0})["dscores"]
    inputs = {name: x[name] for name in "qkfb"}
    return inputs | {"grad": grad} | {name: x[name] for name in ("direction", "include_self")}


def scores_backward_fits(x: Arguments) -> bool:
    if not scores_fit(x):
        return False
    q, grad = x["q"], x["grad"]
    same = grad.dtype == q.dtype and grad.device == q.device and grad.layout == torch.strided and not grad.is_nested
    return same and grad.shape == (*q.shape[:-1], q.shape[-2])


def scores_backward_reference(x: Arguments) -> list[Tensor | None]:
    return gradients(functools.partial(scores_plainly, x), [x[name] for name in "qkfb"], [x["grad"]])


# delta_carry and delta_carry_backward

CARRY = {
    "state": Rule("HDV"),
    "of_values": Rule("NHCV"),
    "of_state": Rule("NHCD"),
    "queries": Rule("NHCD"),
    "keys": Rule("NHCD"),
    "inside": Rule("NHCC"),
    "keep": Rule("NH", optional=True),
}


def carry_call(random: Random) -> Arguments:
    sizes = {letter: random.choice((1, 2, 5)) for letter in "HDVC"} | {"N": random.choice((0, 1, 3))}
    dtype = random.choice(FLOATS[:2])
    x: Arguments = {
        name: torch.randn([sizes[letter] for letter in rule.shapes]).to(dtype) * 0.5 for name, rule in CARRY.items()
    }
    return x | {"keep": x["keep"].sigmoid() if random.random() < 0.5 else None}


def carry_fits(x: Arguments) -> bool:
    return shapes_fit(x, CARRY, FLOATS[:2])


def carry_plainly(*tensors) -> list[Tensor | None]:
    state, of_values, *_ = tensors
    return [*delta.carried(*tensors)] if len(of_values) else [of_values * 1, state * 1]


def carry_reference(x: Arguments) -> list[Tensor | None]:
    return carry_plainly(*(None if y is None else y.double() for y in x.values()))


def carry_backward_fits(x: Arguments) -> bool:
    return shapes_fit(x, CARRY | {"dout": Rule("NHCV"), "dlast": Rule("HDV")}, FLOATS[:2])


def carry_backward_reference(x: Arguments) -> list[Tensor | None]:
    dout, dlast, *inputs = x.values()
    return gradients(carry_plainly, inputs, [dout, dlast])


# cpu_delta and cpu_delta_backward

DELTA = {
    "q": Rule("BTHD"),
    "k": Rule("BTHD"),
    "v": Rule("BTHV"),
    "beta": Rule("BTH"),
    "cost": Rule("BTH", optional=True),
    "cost_reverse": Rule("BTH", optional=True),
    "state": Rule("BHDV", optional=True),
    "state_reverse": Rule("BHDV", optional=True),
}
OF_DELTA = {"q": Rule("BTHD"), "v": Rule("BTHV"), "dout": Rule("BTHV"), "dstate": Rule("BHDV", optional=True)}


def delta_call(random: Random) -> Arguments:
    sizes = {"B": random.choice((1, 2)), "T": random.choice((0, 1, 7, 40)), "H": random.choice((1, 3))}
    sizes |= {"D": random.choice((1, 4, 17)), "V": random.choice((0, 1, 8, 19))}
    dtype, decays = random.choice(FLOATS[:2]), random.random() < 0.6
    x: Arguments = {name: torch.rand([sizes[letter] for letter in rule.shapes]) for name, rule in DELTA.items()}
    x["k"] = torch.nn.functional.normalize(x["k"], dim=-1)
    for name in ("cost", "cost_reverse"):
        x[name] = -x[name] if decays else None
    for name in ("state", "state_reverse"):
        x[name] = x[name] if random.random() < 0.5 else None
    x = {name: None if y is None else y.to(dtype) for name, y in x.items()}
    x |= {"direction": random.choice((1, 2, 3, 3)), "include_self": random.random() < 0.5}
    return x | {"return_states": random.random() < 0.5, "chunk_size": random.choice((0, 1, 5, 16, 64))}


def delta_fits(x: Arguments) -> bool:
    if not shapes_fit(x, DELTA, FLOATS[:2]) or (x["cost"] is None) != (x["cost_reverse"] is None):
        return False
    numbers = x["direction"] in DIRECTIONS and 0 <= x["chunk_size"] <= MAX_TOKENS
    costs = [y for y in (x["cost"], x["cost_reverse"]) if y is not None]
    return numbers and x["q"].shape[3] > 0 and (x["q"].is_meta or all((y <= 0).all() for y in costs))


def delta_plainly(x: Arguments, *tensors: Tensor | None) -> list[Tensor | None]:
    given = x | dict(zip(DELTA, tensors, strict=True))
    return [*cpu_delta.plainly_computed(cpu_delta.Arguments(**{n: given[n] for n in cpu_delta.Arguments._fields}))]


def delta_reference(x: Arguments) -> list[Tensor | None]:
    return delta_plainly(x, *(None if x[name] is None else x[name].double() for name in DELTA))


def delta_backward_call(random: Random) -> Arguments:
    x = delta_call(random)
    out, *left = call("cpu_delta", x)
    dstates = [None if random.random() < 0.2 else torch.randn_like(y) for y in left]
    return {"dout": torch.randn_like(out), "dstates": dstates} | x


def delta_backward_fits(x: Arguments) -> bool:
    if not delta_fits(x):
        return False
    walks = {3: 2}.get(x["direction"], 1) if x["return_states"] else 0
    known = {"q": x["q"], "v": x["v"], "dout": x["dout"]}
    fit = (shapes_fit(known | {"dstate": y}, OF_DELTA, FLOATS[:2]) for y in (None, *x["dstates"]))
    return len(x["dstates"]) == walks and all(fit)


def delta_backward_reference(x: Arguments) -> list[Tensor | None]:
    inputs, grads = [x[name] for name in DELTA], [x["dout"], *x["dstates"]]
    return [torch.empty(0) if y is None else y for y in gradients(functools.partial(delta_plainly, x), inputs, grads)]


# cpu_selective and cpu_selective_backward

SELECTIVE = {
    "q": Rule("BTD"),
    "k": Rule("BTD"),
    "v": Rule("BTH"),
    "step": Rule("BTH"),
    "step_reverse": Rule("BTH", optional=True),
    "rate": Rule("HD"),
    "rate_reverse": Rule("HD", optional=True),
}


def selective_call(random: Random) -> Arguments:
    sizes = {"B": random.choice((1, 2)), "T": random.choice((0, 1, 7, 40)), "H": random.choice((1, 3, 32, 70))}
    sizes |= {"D": random.choice((1, 4, 17))}
    dtype, maybe = random.choice(FLOATS[:2]), lambda: random.random() < 0.4
    x: Arguments = {name: torch.rand([sizes[y] for y in rule.shapes]).to(dtype) for name, rule in SELECTIVE.items()}
    if maybe():
        x |= {"step_reverse": None, "rate_reverse": None}
    B, T = sizes["B"], sizes["T"]
    x["mask"] = torch.rand(B, T) > 0.3 if maybe() else None
    x["cu_seqlens"] = torch.tensor([0, T // 2, T]) if B == 1 and maybe() else None
    x["orders"] = permutations(T, random.choice((1, 2)), x["cu_seqlens"]) if maybe() else None
    return x | {"direction": random.choice((1, 2, 3, 3))}


def selective_fits(x: Arguments) -> bool:
    tokens = {name: OF_TOKENS[name] for name in ("mask", "cu_seqlens", "orders")}
    sizes: dict[str, int] = {}
    if not shapes_fit(x, SELECTIVE | tokens, FLOATS[:2], sizes) or x["direction"] not in DIRECTIONS:
        return False
    paired = (x["step_reverse"] is None) == (x["rate_reverse"] is None)
    packed = x["cu_seqlens"] is None or (sizes["B"] == 1 and sizes["S"] > 1)
    if not (paired and packed and sizes["D"] > 0 and sizes.get("N", 1) > 0):
        return False
    decays = [y for name, y in x.items() if name.startswith(("step", "rate")) and y is not None]
    return x["q"].is_meta or (all(((y >= 0) & y.isfinite()).all() for y in decays) and tokens_fit(x, sizes["T"]))


def selective_plainly(x: Arguments, *tensors: Tensor | None) -> list[Tensor | None]:
    given = x | dict(zip(SELECTIVE, tensors, strict=True))
    return [cpu_selective.plainly_computed(cpu_selective.Selective(**{n: given[n] for n in x if n != "dout"}))]


def selective_reference(x: Arguments) -> list[Tensor | None]:
    return selective_plainly(x, *(None if x[name] is None else x[name].double() for name in SELECTIVE))


def selective_backward_fits(x: Arguments) -> bool:
    (B, T, _), H = x["q"].shape if x["q"].dim() == 3 else (0, 0, 0), x["v"].shape[-1:]
    given = {name: y for name, y in x.items() if name != "dout"}
    dout = {"q": x["q"], "dout": x["dout"]}
    sizes = {"B": B, "T": T} | ({"H": H[0]} if H else {})
    return selective_fits(given) and shapes_fit(dout, {"q": SELECTIVE["q"], "dout": SELECTIVE["v"]}, FLOATS[:2], sizes)


def selective_backward_reference(x: Arguments) -> list[Tensor | None]:
    found = gradients(functools.partial(selective_plainly, x), [x[name] for name in SELECTIVE], [x["dout"]])
    return [torch.empty(0) if y is None else y for y in found]


OPERATORS = {
    "cpu_scan": Operator(scan_call, scan_fits, scan_reference),
    "cpu_scan_backward": Operator(scan_backward_call, scan_backward_fits, scan_backward_reference),
    "cpu_features": Operator(features_call, features_fit, features_reference),
    "cpu_features_backward": Operator(
        lambda random: backward_call("cpu_features", features_call(random), {"dq": 0, "dk": 1}),
        features_backward_fits,
        features_backward_reference,
    ),
    "cpu_projected": Operator(projected_call, projected_fits, projected_reference),
    "cpu_projected_backward": Operator(projected_backward_call, projected_backward_fits, projected_backward_reference),
    "scan": Operator(torch_scan_call, torch_scan_fits, torch_scan_reference),
    "scan_backward": Operator(torch_scan_backward_call, torch_scan_backward_fits, torch_scan_backward_reference),
    "decayed_scores": Operator(scores_call, scores_fit, scores_reference),
    "decayed_scores_backward": Operator(scores_backward_call, scores_backward_fits, scores_backward_reference),
    "cpu_delta": Operator(delta_call, delta_fits, delta_reference),
    "cpu_delta_backward": Operator(delta_backward_call, delta_backward_fits, delta_backward_reference),
    "cpu_selective": Operator(selective_call, selective_fits, selective_reference),
    "cpu_selective_backward": Operator(
        lambda random: backward_call("cpu_selective", selective_call(random), {"dout": 0}),
        selective_backward_fits,
        selective_backward_reference,
    ),
    "delta_carry": Operator(carry_call, carry_fits, carry_reference),
    "delta_carry_backward": Operator(
        lambda random: backward_call("delta_carry", carry_call(random), {"dout": 0, "dlast": 1}),
        carry_backward_fits,
        carry_backward_reference,
    ),
}


def call(name: str, x: Arguments) -> list[Tensor]:
    results = getattr(torch.ops.lion, name)(*x.values())
    results = results if isinstance(results, tuple) else (results,)
    return [y for result in results for y in (result if isinstance(result, list) else [result])]


# By the dtype in which an operator sums up: what it may be off by, of the largest value.
TOLERANCES = {torch.float64: 1e-9, torch.float32: 2e-4, torch.bfloat16: 0.05, torch.float16: 0.05}


def assert_as_reference(got: Sequence[Tensor], want: Sequence[Tensor | None], arguments: Arguments) -> None:
    """In the precision of the least exact of the arguments, and relative to the largest."""
    floats = [x for x in arguments.values() if isinstance(x, Tensor) and x.is_floating_point()]
    tolerance = max(TOLERANCES[x.dtype] for x in (*floats, *got))
    largest = max([1.0, *(x.abs().max().item() for x in floats if x.numel())])
    for i, (x, y) in enumerate(zip(got, want, strict=True)):
        if y is None or x.is_meta or not x.numel() or y.isinf().any():  # a scale of nothing is -inf
            continue
        assert x.shape == y.shape, f"result {i} has shape {tuple(x.shape)}; expected {tuple(y.shape)}."
        if y.numel():
            error, size = (x.double() - y).abs().max().item(), max(y.abs().max().item(), largest)
            assert error <= tolerance * size, f"result {i} differs by {error:.2e} of {size:.2e}."
