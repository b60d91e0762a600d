"""What a captured function changes in place is declared: on the CPU, where nothing is captured, each call is checked.

A CUDA graph needs warm-up runs, after which the declared tensors are restored. One that is missing would be corrupted.
"""

import gc
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from babyai.agents.actor import Actor
from babyai.agents.config import AgentConfig
from babyai.agents.cuda_graph import CudaGraphFunction, UndeclaredMutationError, checking_mutations
from babyai.agents.custom import example_batch
from babyai.agents.film_lstm.model import FilmLSTM
from babyai.batch import Batch
from babyai.engine import Engine
from babyai.training import dagger, imitation, ppo
from babyai.training.imitation import ImitationLearner
from babyai.training.optimizer import optimizer_state
from babyai.training.options import PPOHyperparameters
from babyai.training.ppo import PPO
from babyai.tree import tree_leaves
from tests.training.short_runs import PAPER, Pretend, dagger_options, imitation_options, ppo_options
from tests.training.tiny import Tiny, TwoMemories

SMALL = PPOHyperparameters(worlds=2, steps=2, recurrence=2, minibatches=1, epochs=1)
POLICIES: dict[str, dict[str, Any]] = {
    "own with a dict as state": {"architecture": f"{Path(__file__).with_name('tiny.py')}:TwoMemories"},
    "own under autocast": {"precision": "bf16"},
    "paper, step by step": {**PAPER, "protocol": "code"},
    "paper in bf16": {**PAPER, "precision": "bf16"},
    "big": {**PAPER, "size": "big"},
}


@pytest.fixture(autouse=True)
def _only_new_objects() -> Iterator[None]:
    """Hides what exists before a test, of which nothing is changed, from the check, which is much faster then."""
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.fixture
def checked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Checks every call of a function that a GPU would capture; returns the names of those that were called."""
    calls: list[str] = []
    call = CudaGraphFunction.__call__

    def check(self: CudaGraphFunction, *inputs: Any) -> Any:
        calls.append(getattr(self.function, "__name__", "_step"))
        with checking_mutations(self.mutated()):
            return call(self, *inputs)

    monkeypatch.setattr(CudaGraphFunction, "__call__", check)
    return calls


def make_policy() -> FilmLSTM:
    torch.manual_seed(0)
    return FilmLSTM(AgentConfig.of(memory_dim=8))


def labeled_batch() -> Batch:
    batch = example_batch()
    return replace(batch, labels=batch.actions)


def without(tensors: list[Tensor], omitted: list[Tensor]) -> list[Tensor]:
    missing = {id(tensor) for tensor in omitted}
    assert missing <= {id(tensor) for tensor in tensors}
    return [tensor for tensor in tensors if id(tensor) not in missing]


# ------------------------------------------------------------ whole runs


@pytest.mark.parametrize("changes", POLICIES.values(), ids=POLICIES)
def test_imitation_declares_what_it_changes(
    changes: dict[str, Any], checked: list[str], tmp_path: Path, pretend: Pretend
) -> None:
    pretend([0.5])
    short = {"demos": 4, "batch_size": 1, "epoch_length": 2, "epochs": 1}
    imitation.train(imitation_options(tmp_path / "run", **short, **changes))
    assert checked == ["_learn"] * 2


@pytest.mark.parametrize("changes", [{}, {**PAPER, "precision": "bf16"}], ids=["own", "paper in bf16"])
def test_dagger_declares_what_it_changes(
    changes: dict[str, Any], checked: list[str], tmp_path: Path, pretend: Pretend
) -> None:
    pretend([0.5])
    short = {"demos": 4, "batch_size": 1, "recurrence": 2, "epoch_length": 1, "epochs": 1}
    dagger.train(dagger_options(tmp_path / "run", **short, **changes))
    assert checked == ["_step", "_step", "_learn"]


@pytest.mark.parametrize("changes", POLICIES.values(), ids=POLICIES)
def test_ppo_declares_what_it_changes(
    changes: dict[str, Any], checked: list[str], tmp_path: Path, pretend: Pretend
) -> None:
    pretend([0.5])
    small = {"worlds": 2, "steps": 2, "recurrence": 2, "minibatches": 1}
    ppo.train(ppo_options(tmp_path / "run", **small, **changes), stop=lambda: True)
    assert checked == ["_act"] * 3 + ["_learn_epochs"]


def act_twice(policy: nn.Module, **options: Any) -> None:
    engine = Engine("GoToObjS4", 2)
    engine.reset(0)
    actor = Actor(policy, 2, **options)
    for starts in (True, False):
        actor.act(engine.images, engine.missions, engine.directions, np.full(2, starts))


@pytest.mark.parametrize("sample", [False, True], ids=["argmax", "sample"])
def test_an_actor_declares_what_it_changes(sample: bool, checked: list[str]) -> None:
    act_twice(TwoMemories().eval(), sample=sample)
    act_twice(make_policy().eval(), precision="bf16", sample=sample)
    assert len(checked) == 4


def test_an_actor_in_training_mode_declares_what_it_changes(checked: list[str]) -> None:
    """An actor acts in the mode that the policy is in: in training mode, batch normalization updates its buffers."""
    act_twice(make_policy().train())
    assert len(checked) == 2


# ------------------------------------------------------------ incomplete declarations


def test_a_complete_declaration_of_imitation_passes() -> None:
    core = ImitationLearner(make_policy(), 2)
    with checking_mutations(core.learner.mutated() + tree_leaves(core.state)):
        core.learn(labeled_batch())


@pytest.mark.parametrize("omitted", ["parameter", "buffers", "moments", "totals", "state"])
def test_an_incomplete_declaration_of_imitation_is_an_error(omitted: str) -> None:
    policy = make_policy()
    core = ImitationLearner(policy, 2)
    parts: dict[str, list[Tensor]] = {
        "parameter": [policy.film1.conv1.weight],
        "buffers": list(policy.buffers()),
        "moments": optimizer_state(core.learner.optimizer),
        "totals": [core.learner.totals],
        "state": tree_leaves(core.state),
    }
    declared = without(core.learner.mutated() + tree_leaves(core.state), parts[omitted])
    with pytest.raises(UndeclaredMutationError, match="mutated"), checking_mutations(declared):
        core.learn(labeled_batch())


def test_the_error_says_which_tensors_are_missing() -> None:
    core = ImitationLearner(make_policy(), 2)
    declared = without(core.learner.mutated() + tree_leaves(core.state), [core.learner.totals])
    # A count and four metrics.
    with pytest.raises(UndeclaredMutationError, match=r"1 tensor.*\(5,\) float64"), checking_mutations(declared):
        core.learn(labeled_batch())


def make_ppo(policy: nn.Module, **options: Any) -> PPO:
    engine = Engine("GoToObjS4", SMALL.worlds)
    engine.reset(0)
    return PPO(policy, engine, SMALL, **options)


def act_once(trainer: PPO) -> None:
    """What the collector captures."""
    trainer.collector._launch(np.zeros(SMALL.worlds, dtype=np.float32))


def test_a_complete_declaration_of_ppo_passes() -> None:
    trainer = make_ppo(make_policy(), precision="bf16")
    with checking_mutations(trainer.collector.mutated()):
        act_once(trainer)


@pytest.mark.parametrize("omitted", ["state", "last actions", "buffers"])
def test_an_incomplete_declaration_of_a_rollout_is_an_error(omitted: str) -> None:
    policy = make_policy()
    trainer = make_ppo(policy)
    collector = trainer.collector
    parts: dict[str, list[Tensor]] = {
        "state": tree_leaves(collector.state),
        "last actions": [collector.last_actions],
        "buffers": list(policy.buffers()),
    }
    declared = without(collector.mutated(), parts[omitted])
    with pytest.raises(UndeclaredMutationError), checking_mutations(declared):
        act_once(trainer)


def test_the_bf16_weights_are_declared() -> None:
    learner = make_ppo(make_policy(), precision="bf16").learner
    assert learner.mixed.half_weights()
    declared = without(learner.mutated(), learner.mixed.half_weights())
    with pytest.raises(UndeclaredMutationError, match="bfloat16"), checking_mutations(declared):
        learner.mixed.update_weights()


def test_an_incomplete_declaration_of_an_actor_is_an_error() -> None:
    engine = Engine("GoToObjS4", 2)
    engine.reset(0)
    actor = Actor(Tiny(), 2)
    observation = (engine.images, engine.missions, engine.directions, np.ones(2, dtype=bool))
    with pytest.raises(UndeclaredMutationError), checking_mutations(without(actor.mutated(), [actor.last_actions])):
        actor.act(*observation)
    with pytest.raises(UndeclaredMutationError), checking_mutations(without(actor.mutated(), tree_leaves(actor.state))):
        actor.act(*observation)


class Counting(Tiny):
    """Counts its steps in a tensor that is no buffer, which nobody can know of."""

    def __init__(self) -> None:
        super().__init__()
        self.count = torch.zeros(())

    def forward(self, observation: dict[str, Tensor], state: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        self.count += 1
        return super().forward(observation, state)


def test_a_policy_that_changes_other_tensors_is_an_error() -> None:
    core = ImitationLearner(Counting(), 2)
    with pytest.raises(UndeclaredMutationError, match=r"\(\) float32"), checking_mutations(core.learn.mutated()):
        core.learn(labeled_batch())
