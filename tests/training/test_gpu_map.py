"""The map agent on a GPU: captured memory, packed attention, and training."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from babyai.agents.map.memory import make_tables, new_memory, update_memory
from babyai.agents.map.model import MapPolicy, captured_update
from babyai.agents.map.transformer import (
    attend,
    attend_first_padded,
    attend_from_first,
    attend_packed,
    attend_padded,
    linear_gelu,
)
from babyai.engine import Engine
from babyai.training.guided_rollouts import GuidedRollouts
from babyai.training.online_dagger import FrameLearner, train
from babyai.training.optimizer import optimizer_state
from babyai.training.options import OnlineDaggerOptions
from babyai.training.run import read_rows
from babyai.tree import tree_leaves, tree_map

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
    # torch.compile warns about itself.
    pytest.mark.filterwarnings("ignore"),
]
CUDA = torch.device("cuda")


@pytest.mark.parametrize("compiled", [False, True])
def test_the_captured_memory_is_the_memory(compiled: bool) -> None:
    worlds = 64
    engine = Engine(["BossLevel", "GoToImpUnlock", "PutNext"], worlds)
    engine.reset(0)
    rng = np.random.default_rng(0)
    actions = np.full(worlds, -1)
    plain = new_memory(worlds, torch.device("cpu"))
    captured = new_memory(worlds, CUDA)
    for _ in range(60):
        images = torch.from_numpy(engine.images.copy())
        last = torch.from_numpy(actions.copy())
        plain = update_memory(plain, images, last, make_tables())
        captured = tree_map(torch.clone, captured_update(CUDA, 0, compiled)(captured, images.cuda(), last.cuda()))
        for ours, theirs in zip(tree_leaves(captured), tree_leaves(plain), strict=True):
            assert torch.equal(ours.cpu(), theirs)
        actions = rng.choice(6, worlds, p=[0.15, 0.15, 0.4, 0.1, 0.1, 0.1])
        engine.step(actions, skip_done=True)


@pytest.mark.skipif(attend_packed is None, reason="needs Triton")
@pytest.mark.parametrize("dim", [32, 64])
@pytest.mark.parametrize("one_query", [False, True])
def test_packed_attention_is_padded_attention(dim: int, one_query: bool) -> None:
    torch.manual_seed(0)
    lengths = torch.tensor([1, 5, 130, 64, 17, 410], device=CUDA)
    ends = torch.cat([lengths.new_zeros(1), lengths.cumsum(0)]).int()
    parts = [torch.randn(int(lengths.sum()), 4, dim, device=CUDA, dtype=torch.bfloat16) for _ in range(3)]
    packed = [part.clone().requires_grad_() for part in parts]
    padded = [part.float().requires_grad_() for part in parts]
    query, key, value = packed
    other_query, other_key, other_value = padded
    if one_query:
        first = ends[:-1].long()
        ours = attend_from_first(query[first], key, value, ends, 410)
        theirs = attend_first_padded(other_query[first], other_key, other_value, ends, 410)
    else:
        ours = attend(query, key, value, ends, 410)
        theirs = attend_padded(other_query, other_key, other_value, ends, 410)
    weights = torch.randn_like(theirs)
    torch.testing.assert_close(ours.float(), theirs, atol=2e-2, rtol=2e-2)
    (ours.float() * weights).sum().backward()
    (theirs * weights).sum().backward()
    for one, other in zip(packed, padded, strict=True):
        assert one.grad is not None and other.grad is not None
        torch.testing.assert_close(one.grad.float(), other.grad, atol=5e-2, rtol=5e-2)


@pytest.mark.parametrize(("precision", "tolerance"), [("float32", 2e-3), ("bf16", 0.03)])
def test_captured_gradient_steps_are_gradient_steps(precision: str, tolerance: float) -> None:
    """Padded and replayed from CUDA graphs, or not: the same losses and gradients of the same batches.

    The learning rate is tiny, because Adam makes the first steps with the sign of the gradient, and where that is
    almost zero, rounding decides.
    """
    losses = []
    moments = []
    for cuda_graphs in (True, False):
        torch.manual_seed(0)
        options = OnlineDaggerOptions(size="small", device="cuda", cuda_graphs=cuda_graphs, learning_rate=1e-7)
        policy = MapPolicy(64, 2, 2).to(CUDA)
        learner = FrameLearner(policy, options, precision)
        rollouts = GuidedRollouts(policy, ["BossLevel", "GoToObj"], 128, cuda_graphs=cuda_graphs)
        metrics = []
        for _ in range(12):
            labeled = rollouts.observe()
            learner.learn(labeled)
            row = learner.metrics()
            # At the start all actions are almost equally likely.
            del row["accuracy"]
            metrics.append(list(row.values()))
            rollouts.step(None)
        losses.append(metrics)
        moments.append(torch.cat([tensor.flatten() for tensor in optimizer_state(learner.optimizer)]))
    np.testing.assert_allclose(losses[0], losses[1], rtol=tolerance, atol=tolerance)
    assert torch.nn.functional.cosine_similarity(*moments, dim=0) > 1 - tolerance**2


@pytest.mark.parametrize("solo", [0.5, 1.0])
def test_captured_choices_are_choices(solo: float) -> None:
    torch.manual_seed(0)
    policy = MapPolicy(64, 2, 2).to(CUDA)
    worlds = 600
    captured, plain = (
        GuidedRollouts(policy, ["BossLevel", "GoToObj"], worlds, solo=solo, cuda_graphs=graphs)
        for graphs in (True, False)
    )
    agreement = []
    for rollouts in (captured, plain):
        rollouts.restart(0, True, [1.0, 1.0])
    for _ in range(20):
        drives = torch.from_numpy(captured._agent_drives)
        assert drives.all() == (solo == 1.0)
        ours, theirs = (rollouts.choose(rollouts.observe().frames) for rollouts in (captured, plain))
        assert ours is not None and theirs is not None
        torch.cuda.synchronize()
        agreement.append((ours == theirs)[drives].float().mean().item())
        for rollouts in (captured, plain):
            rollouts.step(theirs.clone())
    assert np.mean(agreement) > 0.99


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_gelu_in_the_matrix_product_is_gelu(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    linear = torch.nn.Linear(64, 256, device=CUDA, dtype=dtype)
    inputs = 3 * torch.randn(1000, 64, device=CUDA, dtype=dtype)
    with torch.no_grad():
        fused = linear_gelu(inputs, linear)
        expected = torch.nn.functional.gelu(linear(inputs).double(), approximate="tanh")
    assert fused.dtype == dtype
    tolerance = 1e-2 if dtype == torch.float32 else 3e-2  # a GPU may multiply float32 matrices in TF32
    torch.testing.assert_close(fused.double(), expected, rtol=tolerance, atol=tolerance)


def test_it_learns_and_resumes(tmp_path: Path) -> None:
    out = str(tmp_path / "run")
    options = OnlineDaggerOptions(
        levels="GoToObj,GoToRedBallGrey",
        size="small",
        device="cuda",
        quiet=True,
        out=out,
        frames=100 * 1024,
        worlds=256,
        batch_size=1024,
        buffer_size=50_000,
        min_buffer=4096,
        validate_every=0,
    )
    train(options)
    train(replace(options, frames=300 * 1024), resume=True)
    rows = read_rows(out)
    assert [row["frames"] for row in rows] == [100 * 1024, 200 * 1024, 300 * 1024]
    assert rows[-1]["accuracy"] > 0.7 > rows[0]["accuracy"]
