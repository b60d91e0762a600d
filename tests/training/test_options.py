"""Options: defaults are the paper's, and mistakes are refused before anything is written."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from babyai.agents.config import AgentConfig, CustomConfig
from babyai.training.options import DaggerOptions, ImitationOptions, PPOHyperparameters, PPOOptions, TrainingOptions
from tests.training.short_runs import PAPER, dagger_options, imitation_options, ppo_options
from tests.training.tiny import PATH

NOWHERE = Path("run")


def name_changes(value: Any) -> str | None:
    """The id of a parametrized test."""
    return "-".join(f"{key}={item}" for key, item in value.items()) if isinstance(value, dict) else None


# ------------------------------------------------------------ defaults


@pytest.mark.parametrize(
    ("changes", "batch_size", "recurrence", "epoch_length", "learning_rate", "entropy_coef", "batch_norm"),
    [
        ({}, 256, 20, 25_600, 1e-4, 0.0, "chunk"),
        ({"size": "big"}, 128, 80, 102_400, 5e-5, 0.01, "chunk"),
        ({"protocol": "code"}, 256, 20, 25_600, 1e-4, 0.01, "step"),
        ({"protocol": "code", "size": "big"}, 128, 80, 51_200, 5e-5, 0.01, "step"),
        ({"entropy_coef": 0.5, "batch_size": 7, "batch_norm": "step"}, 7, 20, 25_600, 1e-4, 0.5, "step"),
        ({"size": "big", "entropy_coef": 0.0, "learning_rate": 1e-3}, 128, 80, 102_400, 1e-3, 0.0, "chunk"),
    ],
    ids=name_changes,
)
def test_defaults_follow_from_size_and_protocol(
    changes: dict[str, Any],
    batch_size: int,
    recurrence: int,
    epoch_length: int,
    learning_rate: float,
    entropy_coef: float,
    batch_norm: str,
) -> None:
    options = ImitationOptions(demos=1, **changes)
    hyper = options.resolve()
    assert (hyper.batch_size, hyper.recurrence, hyper.epoch_length) == (batch_size, recurrence, epoch_length)
    assert (hyper.learning_rate, hyper.entropy_coef, hyper.batch_norm) == (learning_rate, entropy_coef, batch_norm)
    assert hyper.updates_per_epoch == epoch_length // batch_size
    assert (options.unit, options.total) == ("demos", 200 * epoch_length)


def test_ppo_has_the_papers_hyperparameters() -> None:
    options = PPOOptions()
    assert (options.num_chunks, options.frames_per_update, options.minibatches) == (128, 2560, 2)
    assert (options.unit, options.total) == ("frames", 50_000_000)
    assert (options.learning_rate, options.discount, options.gae_lambda, options.clip_coef) == (1e-4, 0.99, 0.99, 0.2)
    assert options.resolve_batch_norm() == "chunk"
    assert PPOOptions(protocol="code").resolve_batch_norm() == "step"
    assert PPOOptions(protocol="code", batch_norm="chunk").resolve_batch_norm() == "chunk"


@pytest.mark.parametrize(("protocol", "expected"), [("text", "mean"), ("code", "sum")])
def test_the_protocols_differ_in_the_bag_of_words(protocol: Any, expected: str) -> None:
    config = PPOOptions(protocol=protocol).agent_config()
    assert isinstance(config, AgentConfig) and config.bag_of_words == expected


def test_a_run_folder_names_algorithm_levels_architecture_size_and_seed() -> None:
    options = PPOOptions(levels="GoToLocal, BabyAI-Open-v0", seed=4)
    assert options.run_folder("ppo") == "runs/ppo-GoToLocal+Open-bow_endpool_res-small-4"
    assert PPOOptions(architecture=PATH).run_folder("ppo") == "runs/ppo-GoToLocal-Tiny-0"
    assert PPOOptions(levels="all").run_folder("ppo") == "runs/ppo-all-bow_endpool_res-small-0"
    assert PPOOptions(out="elsewhere").run_folder("ppo") == "elsewhere"


# ------------------------------------------------------------ agents


def test_options_choose_the_agent() -> None:
    changes: dict[str, Any] = {"size": "big", "memory_dim": 64, "instruction": False, "last_action": True}
    config = ImitationOptions(demos=1, **changes).agent_config()
    expected = AgentConfig.of(size="big", memory_dim=64, instruction=False, last_action=True)
    assert config == expected
    forgetful = PPOOptions(size="big", memory_dim=0).agent_config()
    assert forgetful == AgentConfig.of(size="big", memory_dim=0, attention=False)


def test_settings_are_values_in_json() -> None:
    pairs = ("hidden=8", "rate=1e-2", "residual=true", "sizes=[1, 2]", "kind=gru", "name=a=b", "empty=")
    assert PPOOptions(settings=pairs).policy_settings() == {
        "hidden": 8,
        "rate": 0.01,
        "residual": True,
        "sizes": [1, 2],
        "kind": "gru",
        "name": "a=b",
        "empty": "",
    }


def test_settings_reach_the_configuration() -> None:
    assert PPOOptions(architecture=PATH, settings=("hidden=8",)).agent_config() == CustomConfig(PATH, {"hidden": 8})
    assert PPOOptions(settings=("word_dim=64",)).agent_config() == AgentConfig.of(word_dim=64)
    with pytest.raises(ValueError, match=r"'word_dum'.*did you mean 'word_dim'"):
        PPOOptions(settings=("word_dum=64",)).agent_config()


@pytest.mark.parametrize(
    ("changes", "flag"),
    [
        ({"size": "big"}, "--size"),
        ({"memory_dim": 8}, "--memory-dim"),
        ({"instruction": False}, "--instruction"),
        ({"last_action": True}, "--last-action"),
    ],
)
def test_options_of_the_papers_agents_are_refused_for_ones_own(changes: dict[str, Any], flag: str) -> None:
    with pytest.raises(ValueError, match=f"{flag}.*--settings"):
        PPOOptions(architecture=PATH, **changes).agent_config()


# ------------------------------------------------------------ mistakes

MISTAKES: list[tuple[dict[str, Any], str]] = [
    ({"levels": "GoToLocl"}, "'GoToLocl'.*'GoToLocal'"),
    ({"levels": "GoToObjS4,"}, "''"),
    ({"levels": "GoToObjS4, GoToObjS4"}, "GoToObjS4"),
    ({"validation_episodes": 0}, "validation_episodes.*0"),
    ({"seed": -1}, "seed.*-1"),
    ({"settings": ("hidden",)}, "name=value.*'hidden'"),
    ({"settings": ("my hidden=3",)}, "name=value.*'my hidden=3'"),
    ({"epochs": 0}, "epochs.*0"),
    ({"recurrence": -1}, "recurrence.*-1"),
    ({"learning_rate": 0.0}, r"learning_rate.*0\.0"),
]
IMITATION_MISTAKES: list[tuple[dict[str, Any], str]] = [
    ({"demos": None}, "--demos.*--file.*--endless"),
    ({"demos": 5, "endless": True}, "--demos.*--file.*--endless"),
    ({"demos": 0}, "demos.*0"),
    ({"first_seed": -1}, "-1"),
    ({"demos": 10, "first_seed": 10**9 - 9}, "10 seeds from 999999991"),
    ({"demos": None, "endless": True, "first_seed": 5}, "first_seed.*--demos"),
    ({"file": "demos.parquet", "first_seed": 5}, "first_seed.*--file"),
    ({"level_weights": "1,2"}, "2 level weights for 1 levels"),
    ({"level_weights": "much"}, "'much'"),
    ({"level_weights": "-1"}, "'-1'"),
    ({"level_weights": "0"}, "'0'"),
    ({"level_weights": "inf"}, "'inf'"),
    ({"batch_size": -1}, "batch_size.*-1"),
    ({"epoch_length": 0}, "epoch_length.*0"),
    ({"threads": -1}, "threads.*-1"),
    ({"patience": -1}, "patience.*-1"),
    ({"lr_decay": float("nan")}, "lr_decay.*nan"),
]
DAGGER_MISTAKES: list[tuple[dict[str, Any], str]] = [
    ({"roll_in_fraction": 0.0}, r"roll_in_fraction.*0\.0"),
    ({"roll_in_fraction": 1.0}, r"roll_in_fraction.*1\.0"),
    ({"roll_in_fraction": -1.0}, r"roll_in_fraction.*-1\.0"),
    ({"roll_in_fraction": float("nan")}, "roll_in_fraction.*nan"),
]
PPO_MISTAKES: list[tuple[dict[str, Any], str]] = [
    ({"recurrence": 3}, "8.*recurrence|recurrence.*8"),
    ({"minibatches": 3}, "8 chunks.*3 minibatches"),
    ({"worlds": 0}, "worlds.*0"),
    ({"steps": 0}, "steps.*0"),
    ({"minibatches": 0}, "minibatches.*0"),
    ({"frames": -5}, "frames.*-5"),
    ({"window": -3}, "window.*-3"),
    ({"validate_every": -1}, "validate_every.*-1"),
    ({"max_grad_norm": 0.0}, r"max_grad_norm.*0\.0"),
    ({"seed": 10_000_000}, "10000000.*validation"),
]


@pytest.mark.parametrize(("changes", "message"), MISTAKES + IMITATION_MISTAKES, ids=name_changes)
def test_mistakes_in_imitation_options_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        imitation_options(NOWHERE, **changes)


@pytest.mark.parametrize(("changes", "message"), MISTAKES + IMITATION_MISTAKES + DAGGER_MISTAKES, ids=name_changes)
def test_mistakes_in_dagger_options_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        dagger_options(NOWHERE, **changes)


@pytest.mark.parametrize(("changes", "message"), MISTAKES + PPO_MISTAKES, ids=name_changes)
def test_mistakes_in_ppo_options_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ppo_options(NOWHERE, **changes)


def test_the_last_seed_of_ppo_stays_below_validation() -> None:
    assert PPOOptions(seed=9_999_999).seed * 100 + 64 <= 10**9
    with pytest.raises(ValueError, match="9999999"):
        PPOOptions(seed=9_999_999, worlds=102, steps=20)


def test_hyperparameters_are_refused_without_a_run_too() -> None:
    with pytest.raises(ValueError, match="worlds"):
        PPOHyperparameters(worlds=0)


def test_what_may_change_when_resuming_is_an_option() -> None:
    for options in (imitation_options(NOWHERE), dagger_options(NOWHERE), ppo_options(NOWHERE, **PAPER)):
        assert isinstance(options, TrainingOptions)
        assert all(hasattr(options, name) for name in options.resume_may_change)
        assert not {"seed", "levels", "learning_rate", "architecture", "settings"} & set(options.resume_may_change)
    assert {"epochs", "patience"} <= set(imitation_options(NOWHERE).resume_may_change)
    # PPO's epochs are a hyperparameter.
    assert "frames" in ppo_options(NOWHERE).resume_may_change
    assert "epochs" not in ppo_options(NOWHERE).resume_may_change
    assert isinstance(dagger_options(NOWHERE), DaggerOptions)


def test_options_need_no_torch() -> None:
    code = (
        "import sys\n"
        "from babyai.training.options import *\n"
        "ImitationOptions(demos=1).agent_config(); DaggerOptions(demos=1).resolve(); PPOOptions()\n"
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
