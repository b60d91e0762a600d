"""The benchmark of training on a processor: its peer is the same model and learns, and all time is accounted for."""

import pytest
import torch

pytest.importorskip("minigrid")

from babyai.agents.config import AgentConfig
from babyai.agents.model import Model
from babyai.training.ppo import PPOSettings
from benchmarks import training_cpu
from benchmarks.eager_ppo import EagerPPO, PlainNetwork, observe

TINY = PPOSettings(worlds=4, steps=4, recurrence=2, epochs=1)


def make_peer() -> EagerPPO:
    torch.manual_seed(0)
    return EagerPPO(Model(AgentConfig.of()), "GoToLocal", TINY)


@pytest.mark.parametrize("merge", ["mean", "sum"])
def test_plain_network_is_the_same_model(merge: str) -> None:
    torch.manual_seed(0)
    model = Model(AgentConfig.of(bag_of_words=merge))
    shown = observe(make_peer().shown)
    memory = torch.randn(TINY.worlds, 256)
    answers, gradients = [], []
    for network in (model, PlainNetwork(model)):
        model.zero_grad()
        logits, value, after = network(shown, memory)
        (logits.square().sum() + value.square().sum() + after.square().sum()).backward()
        answers.append(torch.cat([logits.flatten(), value, after.flatten()]).detach())
        # What is added before a norm has no gradient with us, and one of rounding errors otherwise.
        everything = [torch.zeros_like(p) if p.grad is None else p.grad for p in model.parameters()]
        gradients.append(torch.cat([gradient.flatten() for gradient in everything]))
    torch.testing.assert_close(*answers, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(*gradients, rtol=1e-3, atol=1e-4)
    assert len(gradients[0]) > 1_000_000


def test_missions_are_cut_to_the_longest() -> None:
    shown = make_peer().shown
    tokens = observe(shown)["mission"]
    lengths = [len(one["mission"].split()) for one in shown]
    assert tokens.shape == (TINY.worlds, max(lengths))
    assert (tokens != 0).sum(1).tolist() == lengths


def test_peer_estimates_advantages_as_ours_does() -> None:
    from babyai.training.ppo import estimate_advantages
    from babyai.training.rollout import Rollout

    peer, shape = make_peer(), (TINY.steps, TINY.worlds)
    rewards, ended = torch.rand(shape), torch.rand(shape) < 0.3
    values = torch.randn(TINY.steps + 1, TINY.worlds)
    steps = [
        {"reward": TINY.reward_scale * rewards[t], "going_on": (~ended[t]).float(), "value": values[t]}
        for t in range(TINY.steps)
    ]
    peer._estimate_advantages(steps, values[-1])
    rollout = Rollout.__new__(Rollout)
    rollout.rewards, rollout.ended, rollout.values = rewards.numpy(), ended.numpy(), values.numpy()
    ours = torch.from_numpy(estimate_advantages(rollout, TINY))
    torch.testing.assert_close(torch.stack([step["advantage"] for step in steps]), ours)


def test_peer_learns_from_all_of_a_rollout() -> None:
    peer = make_peer()
    observation, played = peer.play()
    frames = TINY.frames_an_update
    assert {len(tensor) for tensor in (*observation.values(), *played.values())} == {frames}
    assert not played["memory"][: TINY.worlds].any() and played["memory"][TINY.worlds :].any()
    before = {name: value.clone() for name, value in peer.model.named_parameters()}
    peer.learn(observation, played)
    # Adam steps as long as its rate, once for each minibatch; rows of tables that were not used stay.
    moved = {name: float((value - before[name]).detach().abs().max()) for name, value in peer.model.named_parameters()}
    assert all(0 < change <= 1.1 * TINY.learning_rate * TINY.minibatches for change in moved.values()), moved


def test_tiny_run_accounts_for_all_time() -> None:
    settings = training_cpu.Settings(rounds=1, threads=torch.get_num_threads(), ppo=TINY)
    results = training_cpu.measure(settings)
    assert set(results["best"]) == set(training_cpu.TITLES)
    for figures in results["best"].values():
        assert all(figures[part] > 0 for part in training_cpu.PARTS)
        parts = sum(figures[part] for part in training_cpu.PARTS)
        assert parts == pytest.approx(TINY.frames_an_update / figures["per_cpu_second"], rel=0.01)
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
