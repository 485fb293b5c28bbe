"""Faults of PyTorch that engines met, each as short as it gets: one that is mended fails here.

They stand in docs/engines.md.
"""

import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint import DefaultLoadPlanner
from torch.distributed.checkpoint.state_dict import get_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.pipelining import PipelineStage, ScheduleInterleavedZeroBubble
from torch.distributed.tensor import Shard, distribute_tensor
from torch.utils.checkpoint import checkpoint

from d5test.distributed.meshes import forget_meshes
from d5test.engines.threads import together


def test_a_checkpoint_mixes_the_running_statistics_of_ranks(tmp_path: Path) -> None:
    """Each rank's are its own under DDP; what is read has one rank's mean, another's variance."""

    def layers() -> nn.Module:
        return nn.Sequential(*(nn.BatchNorm1d(8) for _ in range(6)))

    def read(rank: int) -> list[tuple[float, float]]:
        model = layers()
        for buffer in model.buffers():
            buffer.fill_(rank)
        dcp.save({"model": model.state_dict()}, checkpoint_id=tmp_path)
        dist.barrier()
        state = {"model": layers().state_dict()}
        dcp.load(state, checkpoint_id=tmp_path)
        means, variances = (
            [float(state["model"][f"{i}.{name}"][0]) for i in range(6)]
            for name in ("running_mean", "running_var")
        )
        return list(zip(means, variances, strict=True))

    for statistics in together(3, read):
        assert any(mean != variance for mean, variance in statistics)


def test_a_forward_pass_that_is_made_again_moves_running_statistics_again() -> None:
    """In one step of `torch.utils.checkpoint`."""
    layer = nn.BatchNorm1d(3)
    x = torch.ones(2, 3, requires_grad=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        checkpoint(layer, x, use_reentrant=False).sum().backward()
    assert int(layer.num_batches_tracked) == 2


def test_a_zero_bubble_schedule_loses_the_gradients_of_sharded_weights() -> None:
    """By the defaults of `fully_shard`: the second of two stages has none, in silence."""

    def stepped(rank: int) -> list[bool]:
        mesh, stages = init_device_mesh("cpu", (1,)), []
        for number in range(2):
            layers = (fully_shard(nn.Linear(3, 3), mesh=mesh) for _ in range(2))
            stage = fully_shard(nn.Sequential(*layers), mesh=mesh)
            stages.append(PipelineStage(stage, number, 2, torch.device("cpu")))
        schedule = ScheduleInterleavedZeroBubble(stages, 2, loss_fn=nn.functional.mse_loss)
        schedule.step(torch.ones(4, 3), target=torch.zeros(4, 3))
        return [all(p.grad is not None for p in s.submod.parameters()) for s in stages]

    assert together(1, stepped) == [[True, False]]


def state(*used: int) -> dict[str, Any]:
    """Of two layers after a step of each that is used."""
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    optimizer = torch.optim.AdamW(model.parameters())
    for i in used:
        model[i](torch.ones(1, 2)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    weights, slots = get_state_dict(model, optimizer)
    return {"model": weights, "optimizer": slots}


def test_a_checkpoint_from_before_the_first_use_of_a_parameter_is_not_read(tmp_path: Path) -> None:
    dcp.save(state(0), checkpoint_id=tmp_path / "before")
    dcp.save(state(0, 1), checkpoint_id=tmp_path / "after")
    dcp.load(state(), checkpoint_id=tmp_path / "after")
    with pytest.raises(dcp.api.CheckpointException, match="Missing key in checkpoint state_dict"):
        dcp.load(state(), checkpoint_id=tmp_path / "before")


def test_if_it_is_read_in_part_a_step_was_made_that_nobody_made(tmp_path: Path) -> None:
    """In silence: AdamW's first step is then corrected as if it were the second."""
    dcp.save(state(0), checkpoint_id=tmp_path)
    read = state()
    dcp.load(read, checkpoint_id=tmp_path, planner=DefaultLoadPlanner(allow_partial_load=True))
    assert float(read["optimizer"]["state"]["1.weight"]["step"]) == 1


def test_tensors_have_a_mesh_whose_process_group_is_gone() -> None:
    """Also one of two meshes of many ranks: a collective is then of a group that nobody knows."""

    def of_its_mesh() -> bool:
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        mesh = init_device_mesh("cpu", (1,))
        x = distribute_tensor(torch.ones(2), mesh, [Shard(0)]).abs()
        dist.destroy_process_group()
        return x.device_mesh is mesh

    forget_meshes()
    assert of_its_mesh()
    assert not of_its_mesh()
    forget_meshes()
    assert of_its_mesh()


def test_replicas_part_after_a_rank_has_joined() -> None:
    """It takes no step while it shadows the others, and so its momentum stays behind."""

    def trained(rank: int) -> list[float]:
        model = nn.parallel.DistributedDataParallel(nn.Linear(1, 1, bias=False))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.125, momentum=0.75)
        weights = []
        for _ in range(2):
            with model.join():
                for _ in range(2 - rank):
                    model(torch.ones(1, 1)).sum().backward()
                    optimizer.step()
                    optimizer.zero_grad()
                    weights.append(model.module.weight.item())
            weights.append(model.module.weight.item())
        return weights

    (first, _, ended, second, *_, last), (joined, also_ended, other, also_last) = together(
        2, trained
    )
    assert (first, ended, last) == (joined, also_ended, also_last)
    assert second != other
