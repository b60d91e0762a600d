"""Benchmarks of training: the CPU peer is the same model and learns, all time is accounted for."""

import json
from pathlib import Path

import pytest
import torch

pytest.importorskip("minigrid")

from babyai.agents.config import AgentConfig
from babyai.agents.film_lstm.model import FilmLSTM
from babyai.training.imitation import ImitationLearner
from babyai.training.options import PPOHyperparameters
from benchmarks import kernels, training, training_cpu
from benchmarks.eager_ppo import EagerPPO, PlainNetwork, to_tensors

TINY = PPOHyperparameters(worlds=4, steps=4, recurrence=2, epochs=1)


def make_peer() -> EagerPPO:
    torch.manual_seed(0)
    return EagerPPO(FilmLSTM(AgentConfig.of()), "GoToLocal", TINY)


# ------------------------------------------------------------ the peer


@pytest.mark.parametrize("merge", ["mean", "sum"])
def test_plain_network_is_the_same_model(merge: str) -> None:
    torch.manual_seed(0)
    policy = FilmLSTM(AgentConfig.of(bag_of_words=merge))
    observation = to_tensors(make_peer().observations)
    unused = dict.fromkeys(("direction", "last_action"), torch.zeros(TINY.worlds))
    memory = torch.randn(TINY.worlds, 256)
    h, c = memory.chunk(2, 1)
    outputs = []
    gradients = []
    for run in (lambda: policy(observation | unused, (h, c)), lambda: PlainNetwork(policy)(observation, memory)):
        policy.zero_grad()
        logits, value, after = run()
        after = torch.cat(after, 1) if isinstance(after, tuple) else after
        (logits.square().sum() + value.square().sum() + after.square().sum()).backward()
        outputs.append(torch.cat([logits.flatten(), value, after.flatten()]).detach())
        # A bias before a batch norm has no gradient with us, and one of rounding errors otherwise.
        parameters = [torch.zeros_like(p) if p.grad is None else p.grad for p in policy.parameters()]
        gradients.append(torch.cat([gradient.flatten() for gradient in parameters]))
    torch.testing.assert_close(*outputs, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(*gradients, rtol=1e-3, atol=1e-4)
    assert len(gradients[0]) > 1_000_000


def test_missions_are_cut_to_the_longest() -> None:
    observations = make_peer().observations
    tokens = to_tensors(observations)["mission"]
    lengths = [len(observation["mission"].split()) for observation in observations]
    assert tokens.shape == (TINY.worlds, max(lengths))
    assert (tokens != 0).sum(1).tolist() == lengths


def test_peer_estimates_advantages_as_ours_does() -> None:
    from babyai.batch import Batch
    from babyai.training.ppo import estimate_advantages
    from babyai.training.rollout import Rollout

    peer = make_peer()
    shape = (TINY.steps, TINY.worlds)
    rewards = torch.rand(shape)
    done = torch.rand(shape) < 0.3
    values = torch.randn(TINY.steps + 1, TINY.worlds)
    steps = [
        {"reward": TINY.reward_scale * rewards[t], "not_done": (~done[t]).float(), "value": values[t]}
        for t in range(TINY.steps)
    ]
    peer._estimate_advantages(steps, values[-1])
    batch = Batch.empty(*shape)
    batch.rewards[:] = rewards.numpy()
    batch.terminated[:] = done.numpy()
    batch.truncated[:] = False
    batch.values = values[:-1].numpy()
    rollout = Rollout(batch, states=[], last_values=values[-1].numpy(), returns=[], lengths=[])
    ours = torch.from_numpy(estimate_advantages(rollout, TINY))
    torch.testing.assert_close(torch.stack([step["advantage"] for step in steps]), ours)


def test_peer_learns_from_all_of_a_rollout() -> None:
    peer = make_peer()
    observation, rollout = peer.play()
    assert {len(tensor) for tensor in (*observation.values(), *rollout.values())} == {TINY.frames_per_update}
    assert not rollout["memory"][: TINY.worlds].any() and rollout["memory"][TINY.worlds :].any()
    before = {name: value.clone() for name, value in peer.network.named_parameters()}
    peer.learn(observation, rollout)
    # A step of Adam is at most as long as the learning rate, and there is one for each minibatch.
    moved = {
        name: float((value - before[name]).detach().abs().max()) for name, value in peer.network.named_parameters()
    }
    assert all(0 < change <= 1.1 * TINY.learning_rate * TINY.minibatches for change in moved.values()), moved


# ------------------------------------------------------------ PPO on a CPU


def test_tiny_run_accounts_for_all_time() -> None:
    settings = training_cpu.Settings(rounds=1, threads=torch.get_num_threads(), ppo=TINY)
    results = training_cpu.measure(settings)
    assert set(results["best"]) == set(training_cpu.TITLES)
    for figures in results["best"].values():
        assert all(figures[part] > 0 for part in training_cpu.PARTS)
        parts = sum(figures[part] for part in training_cpu.PARTS)
        assert parts == pytest.approx(TINY.frames_per_update / figures["per_cpu_second"], rel=0.01)
    assert results["best"]["eager"]["ratio"] == 1
    assert len(training_cpu.table(results).splitlines()) == 2 + len(training_cpu.TITLES)


def test_best_round_of_each_counts() -> None:
    parts = dict.fromkeys(training_cpu.PARTS, 1.0)

    def turn(rate: float) -> dict[str, float]:
        return {"per_cpu_second": rate, "per_second": 2 * rate, **parts}

    rates = {"eager": (10, 8), "float32": (11, 12), "bf16": (5, 14)}
    rounds = [{name: turn(pair[k]) for name, pair in rates.items()} for k in range(2)]
    results = training_cpu.summarize(rounds)
    assert {name: best["ratio"] for name, best in results["best"].items()} == {"eager": 1, "float32": 1.2, "bf16": 1.4}
    assert not training_cpu.is_fast(results) and "1.20 misses" in training_cpu.verdict(results)
    rounds[0]["float32"] = turn(13)
    assert training_cpu.is_fast(training_cpu.summarize(rounds))


# ------------------------------------------------------------ kernels


def test_batch_of_the_kernel_benchmark_can_be_learned_from() -> None:
    torch.manual_seed(0)
    batch = kernels.make_batch(3, 2, 4, 8, torch.device("cpu"))
    learner = ImitationLearner(FilmLSTM(AgentConfig.of()), batch.num_lanes)
    learner.learn(batch)
    assert learner.learner.metrics()["cross_entropy"] > 0


def test_kernels_are_summed_by_purpose() -> None:
    times = {"cudnn_fprop_a": 1500.0, "wgrad_b": 500.0, "multi_tensor_apply": 1000.0, "memcpy": 3000.0}
    expected = {"copies and others": 3.0, "convolutions": 2.0, "Adam": 1.0}
    assert kernels.summarize(times) == expected
    assert list(kernels.summarize(times)) == list(expected)


# ------------------------------------------------------------ stored measurements


def test_new_measurement_is_appended(tmp_path: Path) -> None:
    new = tmp_path / "new.json"
    results = tmp_path / "training.json"
    new.write_text(json.dumps({"origin": {"commit": "b"}, "ppo": {"frames_per_second": 2}}))
    results.write_text(json.dumps({"measurements": [{"group": "A", "origin": {"commit": "a"}}]}))
    training.collect_measurement(new, results)
    measurements = json.loads(results.read_text())["measurements"]
    assert [(entry["group"], entry["origin"]["commit"]) for entry in measurements] == [("A", "a"), ("B", "b")]
