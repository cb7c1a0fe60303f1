"""Sequence parallelism: one sequence over many processes, each with a piece of it.

    mesh = init_device_mesh("cuda", (4, 8), mesh_dim_names=("data", "sequence"))
    lion.parallel.sequence_parallel(model, mesh["sequence"])
    y = model(lion.parallel.piece_of(x, mesh["sequence"]))  # this process's tokens, and what all others did to them

A layer sends the states behind its piece to all others, by one all-gather, and by one more in the backward pass. Their
size does not depend on the number of tokens. Outputs and gradients are those of one process.
"""

import hashlib
from typing import TypeVar

import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh

from lion.nn.pieces import Cuttable, refusals
from lion.parallel.agreement import agree
from lion.parallel.ranks import Ranks

Model = TypeVar("Model", bound=nn.Module)
Group = DeviceMesh | dist.ProcessGroup


def sequence_parallel(model: Model, mesh: Group) -> Model:
    """Let a model, or a layer, work on pieces of sequences, process r of the group on piece r. It is changed in place.

    Afterwards it takes and returns the tokens of this process alone (`piece_of`). Pieces may be of different lengths,
    or empty. What a model says of a whole sequence, as its class or its loss, all processes have. Gradients of
    parameters are averaged over the processes, as DistributedDataParallel and FSDP2 do; a loss that has been added up
    over a piece alone wants a sum in place of the mean.

    All processes of the group have to call the model together, and then backward.

    Args:
        mesh: a process group, or one dimension of a DeviceMesh: mesh["sequence"]. The others are free for data
            parallelism and FSDP2, which wrap the model afterwards.
    """
    group = group_of(mesh)
    _agree_on(model, group)
    ranks = Ranks(group)
    for module in model.modules():
        if isinstance(module, Cuttable):
            module.piece = ranks
    model.register_forward_pre_hook(agree, with_kwargs=True)
    return model


def piece_of(x: Tensor, mesh: Group, dim: int = 1) -> Tensor:
    """This process's piece of a whole sequence that all processes have: as even as it goes, the longer ones first."""
    group = group_of(mesh)
    return x.tensor_split(dist.get_world_size(group), dim)[dist.get_rank(group)]


def group_of(mesh: Group) -> dist.ProcessGroup:
    if not dist.is_available() or not dist.is_initialized():
        raise ValueError(
            "there are no processes to share a sequence; expected torch.distributed.init_process_group before, and a "
            "program that is started several times: torchrun --nproc-per-node 2 ..."
        )
    if isinstance(mesh, DeviceMesh):
        if mesh.ndim != 1:
            names = mesh.mesh_dim_names or ()
            one = f"one of them: mesh[{names[-1]!r}]" if names else "a mesh of one dimension"
            shape = " x ".join(map(str, mesh.shape))
            raise ValueError(f"the mesh has {mesh.ndim} dimensions ({shape}); expected {one}.")
        return mesh.get_group()
    if not isinstance(mesh, dist.ProcessGroup):
        kind = type(mesh).__name__
        raise TypeError(
            f"mesh is a {kind}; expected a process group, or one dimension of a DeviceMesh: mesh['sequence']."
        )
    if dist.get_rank(mesh) < 0:
        raise ValueError("this process is not in the group; expected one that it is in: others do not take part.")
    return mesh


def _agree_on(model: nn.Module, group: dist.ProcessGroup) -> None:
    """All processes have to have the same model, which can be cut; else all say so."""
    reasons = refusals(model)
    described = "\n".join([repr(model), *(f"{n} {tuple(x.shape)} {x.dtype}" for n, x in model.named_parameters())])
    mine = reasons[0] if reasons else "", type(model).__name__, hashlib.sha256(described.encode()).hexdigest()
    all_of_them: list[tuple[str, str, str]] = [mine] * dist.get_world_size(group)
    dist.all_gather_object(all_of_them, mine, group=group)
    for rank, (reason, _, _) in enumerate(all_of_them):
        if reason:
            raise ValueError(f"the model cannot be cut into pieces (process {rank} says so). {reason}.")
    for rank, (_, name, digest) in enumerate(all_of_them):
        if digest != all_of_them[0][2]:
            raise ValueError(
                f"process {rank} has another model ({name}) than process 0 ({all_of_them[0][1]}); expected the same "
                "settings and parameters' shapes on all."
            )
