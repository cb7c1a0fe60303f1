"""What the processes of the tests do. Each has the whole sequence, too, and compares its piece with that."""

import copy
import dataclasses

import torch
import torch.distributed as dist

import lion
from lion import parallel
from lion.parallel import exchange


def cuts(T, ranks, kind):
    """Lengths of the pieces."""
    if kind == "even":
        return [len(x) for x in torch.arange(T).tensor_split(ranks)]
    lengths = [0, *[1] * (ranks - 2), T - ranks + 2]  # an empty one, some of a token, and the rest
    return lengths if kind == "empty first" else lengths[::-1]


def piece(x, lengths, rank, dim=1):
    return x if x is None else x.split(lengths, dim)[rank]


def gradients(module, y, weights, x):
    """Of the inputs x, and of all parameters that have one."""
    named = {"x": x, **dict(module.named_parameters())}
    found = torch.autograd.grad((y * weights).sum(), list(named.values()), allow_unused=True)
    return {name: g for name, g in zip(named, found, strict=True) if g is not None}


def largest_error(got, want):
    """Of any tensor, beside its largest number; and which it is of."""
    assert got.keys() == want.keys()
    errors = {
        name: ((got[name] - x).abs().max() / x.abs().max().clamp(min=1e-3)).item() if x.numel() else 0.0
        for name, x in want.items()
    }
    return max((error, name) for name, error in errors.items())


def layers(group, settings, T, kind, masked):
    """By variant and options, the largest error of this process: of its outputs, its inputs' and all gradients."""
    ranks, rank = dist.get_world_size(group), dist.get_rank(group)
    lengths = cuts(T, ranks, kind)
    found = {}
    for variant, options in settings:
        torch.manual_seed(0)
        layer = lion.LionAttention(8, 2, variant, **options).double()
        x, weights = (torch.randn(2, T, 8, dtype=torch.float64) for _ in range(2))
        mask = torch.rand(2, T) > 0.3 if masked else None
        whole = x.clone().requires_grad_()
        y = layer(whole, mask)
        want = gradients(layer, y, weights, whole)
        want["x"], want["y"] = piece(want["x"], lengths, rank), piece(y, lengths, rank).detach()
        x, weights, mask = (piece(z, lengths, rank) for z in (x.requires_grad_(), weights, mask))
        cut = parallel.sequence_parallel(copy.deepcopy(layer), group)
        y = cut(x, mask)
        got = gradients(cut, y, weights, x)
        for name in sorted(got.keys() - {"x"}):
            dist.all_reduce(got[name], group=group)
        found[variant, str(options)] = largest_error({**got, "y": y.detach()}, want)
    return found


def in_float32(group, variants, T):
    """By variant, the errors of outputs and of the inputs' gradients: in pieces, and in one."""
    ranks, rank = dist.get_world_size(group), dist.get_rank(group)
    lengths = cuts(T, ranks, "even")
    found = {}
    for variant in variants:
        torch.manual_seed(0)
        layer = lion.LionAttention(32, 4, variant)
        cut = parallel.sequence_parallel(copy.deepcopy(layer), group)
        x, weights = (torch.randn(2, T, 32) for _ in range(2))
        results = []
        for module, mine in ((copy.deepcopy(layer).double(), False), (layer, False), (cut, True)):
            given = x.to(module.in_proj.weight.dtype).requires_grad_()
            part = piece(given, lengths, rank) if mine else given
            y = module(part)
            (dx,) = torch.autograd.grad((y * (piece(weights, lengths, rank) if mine else weights)).sum(), given)
            results.append((y.detach() if mine else piece(y.detach(), lengths, rank), piece(dx, lengths, rank)))
        exact, one, pieces = results
        found[variant] = [[(a - b).abs().max().item() for a, b in zip(x, exact, strict=True)] for x in (pieces, one)]
    return found


class Counted:
    """The collectives of a piece of code, as numbers of bytes that a process sends."""

    def __enter__(self):
        self.sizes, self.ordinary = [], exchange.all_gather

        def counted(rows, row, **options):
            self.sizes.append(row.numel() * row.element_size())
            return self.ordinary(rows, row, **options)

        exchange.all_gather = counted
        return self.sizes

    def __exit__(self, *error):
        exchange.all_gather = self.ordinary


def collectives(group, variant, lengths, options):
    """By length, the bytes of each all-gather that the layer has in its forward and in its backward pass."""
    rank, found = dist.get_rank(group), []
    for T in lengths:
        layer = parallel.sequence_parallel(lion.LionAttention(32, 2, variant, **options), group)
        x = torch.randn(3, T + rank, 32)  # pieces of different lengths
        with Counted() as forward:
            y = layer(x)
        with Counted() as backward:
            y.sum().backward()
        found.append((forward, backward))
    return found


def refused(group, case):
    """What is said to bad input."""
    rank = dist.get_rank(group)
    mesh, layer, x = group, lion.LionAttention(8, 2), torch.randn(2, 5, 8)
    how = {}
    if case == "softmax":
        layer = lion.LionAttention(8, 2, "softmax")
    elif case == "orders":
        layer = lion.LionAttention(8, 2, orders=["rows", "columns"])
    elif case == "image model":
        layer, x = lion.create_model("lion_s_tiny_patch16_224", depth=1, stem="conv"), torch.randn(1, 3, 16, 16)
    elif case == "no attention":
        layer = torch.nn.Linear(8, 8)
    elif case == "mesh":
        mesh = dist.device_mesh.init_device_mesh(
            "cpu", (1, dist.get_world_size(group)), mesh_dim_names=("data", "sequence")
        )
    elif case == "no mesh":
        mesh = 2
    elif case == "settings" and rank:
        layer = lion.LionAttention(8, 2, "lion_d")
    elif case == "batch" and rank:
        x = torch.randn(3, 5, 8)
    elif case == "dtype" and rank:
        x = x.bfloat16()
    elif case == "gradients" and rank:
        layer.requires_grad_(False)
    elif case == "packed":
        how = {"cu_seqlens": torch.tensor([0, 5], dtype=torch.int32)}
        x = x[:1]
    try:
        parallel.sequence_parallel(layer, mesh)(x, **how)
    except (ValueError, TypeError) as problem:
        return str(problem)
    return None


def autocast_and_compiled(group):
    """Errors of a compiled layer against the same layer, and of bfloat16's against one process's."""
    lengths = cuts(13, dist.get_world_size(group), "even")
    layer = lion.LionAttention(16, 2, "lion_s")
    x = torch.randn(2, 13, 16)
    mine = piece(x, lengths, dist.get_rank(group))
    cut = parallel.sequence_parallel(copy.deepcopy(layer), group)
    want = cut(mine).detach()
    with torch.autocast("cpu", torch.bfloat16):
        low = (cut(mine) - piece(layer(x), lengths, dist.get_rank(group))).abs().max().item()
    compiled = torch.compile(cut, backend="eager", dynamic=False)
    return (compiled(mine) - want).abs().max().item(), low


def models(group, settings, T, kind):
    """By name, the largest error of a model's outputs and of all its gradients."""
    ranks, rank = dist.get_world_size(group), dist.get_rank(group)
    lengths = cuts(T, ranks, kind)
    found = {}
    for name, make, masked, recomputed in settings:
        torch.manual_seed(0)
        model = make().double()
        mask = torch.rand(2, T) > 0.3 if masked else None
        ids = torch.randint(1, 7, (2, T))
        cut = parallel.sequence_parallel(copy.deepcopy(model), group)
        cut.set_grad_checkpointing(recomputed)
        want, got = model(ids, mask), cut(piece(ids, lengths, rank), piece(mask, lengths, rank))
        per_token = want.dim() == 3
        weights = torch.randn_like(want)
        mine = piece(weights, lengths, rank) if per_token else weights
        wanted = torch.autograd.grad((want * weights).sum(), list(model.parameters()), allow_unused=True)
        grads = torch.autograd.grad((got * mine).sum(), list(cut.parameters()), allow_unused=True)
        names = [name for name, _ in model.named_parameters()]
        wanted, grads = ({n: g for n, g in zip(names, x, strict=True) if g is not None} for x in (wanted, grads))
        for n in names:
            if n in grads:
                dist.all_reduce(grads[n], group=group)
                grads[n] /= 1 if per_token else ranks  # all have said the same of the whole
        want = piece(want, lengths, rank) if per_token else want
        found[name] = largest_error({**grads, "y": got.detach()}, {**wanted, "y": want.detach()})
    return found


def images(group, settings, rows):
    """By name, the largest error of an image model's outputs and of all its gradients. `rows` of patches by process."""
    rank, patch = dist.get_rank(group), 4
    found = {}
    for name, options in settings:
        torch.manual_seed(0)
        model = lion.create_model("lion_s_tiny_patch16_224", dim=8, heads=2, depth=2, patch_size=patch, num_classes=3)
        model = type(model)(dataclasses.replace(model.config, image_size=(8, 12), **options)).double()
        cut = parallel.sequence_parallel(copy.deepcopy(model), group)
        x = torch.randn(2, 3, patch * sum(rows), 12, dtype=torch.float64)
        want, got = model(x), cut(piece(x, [patch * n for n in rows], rank, 2))
        weights = torch.randn_like(want)
        names = [n for n, _ in model.named_parameters()]
        wanted = dict(zip(names, torch.autograd.grad((want * weights).sum(), list(model.parameters())), strict=True))
        grads = dict(zip(names, torch.autograd.grad((got * weights).sum(), list(cut.parameters())), strict=True))
        for n in names:
            dist.all_reduce(grads[n], group=group)
            grads[n] /= dist.get_world_size(group)
        found[name] = largest_error({**grads, "y": got.detach()}, {**wanted, "y": want.detach()})
    return found
