"""The map agent's network: tokens, packed attention, and the policy contract."""

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from babyai.agents import Agent
from babyai.agents.config import MAP_PARTS
from babyai.agents.custom import check_contract, example_batch
from babyai.agents.map import codes
from babyai.agents.map.model import MapPolicy
from babyai.agents.map.padding import PADDING_SEQUENCES, Capacities, Sizes
from babyai.agents.map.tokens import (
    GRID,
    PATCH,
    REACH,
    Frames,
    frames_of,
    hide_frames,
    tokenize_frames,
)
from babyai.agents.map.transformer import (
    attend,
    attend_first_padded,
    attend_from_first,
    attend_padded,
    gelu_on_cpu,
    linear_gelu,
)
from babyai.agents.policy import unroll
from babyai.engine import Engine
from babyai.evaluation.evaluate import evaluate
from babyai.evaluation.players import AgentPlayer
from tests.agents.map.test_memory import Follower


def make_policy(seed: int = 0) -> MapPolicy:
    torch.manual_seed(seed)
    return MapPolicy(dim=32, layers=2, heads=4)


def play_frames(steps: int = 12, worlds: int = 8) -> Frames:
    follower = Follower(["BossLevel", "PutNextLocal"], worlds, 5)
    for _ in range(steps):
        follower.observe()
        follower.step()
    follower.observe()
    return frames_of(follower.memory, torch.from_numpy(follower.engine.missions))


def make_room(policy: MapPolicy, frames: Frames) -> Sizes:
    return Capacities().fit(Sizes(*policy.count(frames).tolist()))


def test_it_follows_the_contract() -> None:
    check_contract(make_policy())


def test_unrolling_has_gradients_for_all_weights_but_the_untrained_heads() -> None:
    policy = make_policy()
    unrolled = unroll(policy, example_batch(), policy.initial_state(2))
    unrolled.logits.square().sum().backward()
    untouched = {name for name, parameter in policy.named_parameters() if parameter.grad is None}
    assert {name.split(".")[0] for name in untouched} == {"critic", "progress", "path", "path_norm"}


def test_frames_do_not_see_each_other() -> None:
    """Each frame of a packed batch is decided as if it were alone."""
    policy = make_policy().eval()
    frames = play_frames()
    with torch.no_grad():
        together = policy.decide(frames).logits
        alone = torch.cat([policy.decide(Frames(*(part[i : i + 1] for part in frames))).logits for i in range(8)])
    torch.testing.assert_close(together, alone, atol=1e-5, rtol=1e-5)
    assert together.std(0).max() > 0


def test_padding_changes_nothing() -> None:
    policy = make_policy()
    frames = play_frames(steps=30)
    exact = policy.tokenize(frames)
    padded = policy.tokenize(frames, make_room(policy, frames))
    assert len(padded.patch_at) > len(exact.patch_at) and len(padded.ends) == len(exact.ends) + PADDING_SEQUENCES
    everywhere = torch.cat([padded.ends[:8].long(), padded.patch_at, padded.event_at, padded.word_at])
    assert torch.equal(everywhere.sort().values, torch.arange(int(padded.ends[-1])))
    assert int(padded.ends.diff().max()) <= padded.longest
    gradients = []
    for tokens in (exact, padded):
        decisions = policy.decide_tokens(tokens)
        policy.zero_grad()
        (decisions.logits.square().sum() + decisions.progress.square().sum()).backward()
        gradients.append((decisions.logits, {name: p.grad for name, p in policy.named_parameters()}))
    (logits, plain), (same_logits, same) = gradients
    torch.testing.assert_close(logits, same_logits)
    for name, gradient in plain.items():
        torch.testing.assert_close(gradient, same[name], msg=name)


def test_parts_can_be_left_out() -> None:
    frames = play_frames(60)
    full = make_policy().tokenize(frames)
    tokens = {part: MapPolicy(32, 1, 2, (part,)).tokenize(frames) for part in MAP_PARTS}
    contents, places, traces, visits = full.patches.unbind(1)
    assert len(full.event_kind) and visits.any() and len(set(places.flatten().tolist())) > 3

    assert not len(tokens["events"].event_kind)
    assert torch.equal(tokens["events"].patches, full.patches)

    assert not tokens["visits"].patches[:, 3].any()
    assert torch.equal(tokens["visits"].patches[:, :3], full.patches[:, :3])

    without_places = tokens["places"]
    assert set(without_places.patches[:, 1].flatten().tolist()) == {0, 1}
    assert torch.equal(without_places.patches[:, 0], contents) and torch.equal(without_places.patches[:, 2], traces)
    assert not (without_places.event_class % codes.NUM_PLACES).any() and (full.event_class % codes.NUM_PLACES).any()
    assert set(without_places.carried_place.tolist()) <= {0, 1}

    in_view = tokens["map"]
    cells = torch.zeros(8, dtype=torch.long).index_add(0, in_view.patch_frame, (in_view.patches[:, 0] > 0).sum(1))
    assert (cells <= 49).all() and cells.sum() < (contents > 0).sum()
    # The agent stands in the lowest row of its view.
    assert (in_view.patch_index // GRID).min() == GRID // 2


def test_an_ablated_agent_stays_one(tmp_path: Path) -> None:
    agent = Agent.create("map", size="small", seed=0, without="events+visits")
    agent.save(tmp_path)
    loaded = Agent.load(tmp_path)
    assert isinstance(loaded.model, MapPolicy) and loaded.model.without == ("events", "visits")


def test_capacities_change_only_if_they_must() -> None:
    capacities = Capacities()
    needed = Sizes(100_000, 20_000, 30_000, 500, 10_000, 50, 200)
    sizes = capacities.fit(needed)
    assert all(size > count for size, count in zip(sizes, needed, strict=True))
    assert sizes.tokens < 1.05 * needed.tokens
    assert capacities.fit(needed._replace(patches=101_000, traced=700, longest=150)) == sizes
    larger = capacities.fit(needed._replace(patches=110_000))
    assert larger.patches >= 110_000 and larger[1:] == sizes[1:]
    assert capacities.fit(needed) == larger
    assert capacities.fit(needed._replace(longest=300)) == larger._replace(longest=320)
    smaller = capacities.fit(Sizes(50_000, 10_000, 15_000, 500, 10_000, 50, 100))
    assert smaller.tokens < 0.6 * sizes.tokens and smaller.longest == 128
    # Padding must fit into its sequences, too.
    capacities.fit(Sizes(1_000_000, 0, 0, 0, 0, 0, 100))
    assert capacities.fit(Sizes(850_000, 0, 0, 0, 0, 0, 100)).longest >= 170_000 / PADDING_SEQUENCES


def test_counts_are_counts() -> None:
    policy = make_policy()
    frames = play_frames(steps=30)
    tokens = policy.tokenize(frames)
    sorts = (tokens.patch_at, tokens.event_at, tokens.word_at, tokens.traced, tokens.visited, tokens.neighbors)
    assert policy.count(frames).tolist() == [*map(len, sorts), tokens.longest]
    assert tokens.longest == tokens.ends.diff().max() and all(map(len, sorts[:3])) and len(tokens.visited)


def test_gelu_without_gradients_is_gelu() -> None:
    x = torch.linspace(-12, 12, 1001)
    expected = torch.nn.functional.gelu(x.double(), approximate="tanh")
    torch.testing.assert_close(gelu_on_cpu(x).double(), expected, rtol=1e-5, atol=1e-6)
    assert gelu_on_cpu(x.bfloat16()).dtype == torch.bfloat16
    torch.testing.assert_close(gelu_on_cpu(x.bfloat16()).double(), expected, rtol=0.03, atol=0.01)
    linear = torch.nn.Linear(8, 16)
    inputs = torch.randn(50, 8)
    with torch.no_grad():
        without = linear_gelu(inputs, linear)
    torch.testing.assert_close(linear_gelu(inputs, linear), without, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(
        without, torch.nn.functional.gelu(linear(inputs), approximate="tanh"), rtol=1e-5, atol=1e-6
    )


def test_hidden_frames_have_the_agents_token_only() -> None:
    policy = make_policy()
    frames = play_frames(steps=30)
    hidden = torch.arange(len(frames.pose)) % 2 == 0
    tokens = policy.tokenize(hide_frames(frames, hidden))
    assert (tokens.ends.diff()[hidden] == 1).all() and (tokens.ends.diff()[~hidden] > 5).all()
    # The others are what they were.
    logits = policy.decide(frames).logits
    torch.testing.assert_close(policy.decide_tokens(tokens).logits[~hidden], logits[~hidden])


@pytest.mark.parametrize(
    ("attention", "from_first"), [(attend_padded, attend_first_padded), (attend, attend_from_first)]
)
def test_packed_attention_is_attention(attention: Callable[..., Tensor], from_first: Callable[..., Tensor]) -> None:
    torch.manual_seed(0)
    lengths = [3, 1, 5]
    ends = torch.tensor([0, 3, 4, 9], dtype=torch.int32)
    query, key, value = torch.randn(3, 9, 2, 8).unbind(0)
    packed = attention(query, key, value, ends, max(lengths))
    first = from_first(query[ends[:-1].long()], key, value, ends, max(lengths))
    torch.testing.assert_close(first, packed[ends[:-1].long()])
    for start, end in pairwise(ends.tolist()):
        part = slice(start, end)
        scores = torch.einsum("qhd,khd->hqk", query[part], key[part]) / 8**0.5
        expected = torch.einsum("hqk,khd->qhd", scores.softmax(2), value[part])
        torch.testing.assert_close(packed[part], expected)


def test_the_map_is_turned_around_the_agent() -> None:
    """What is in the view lies where the view shows it: ahead is up."""
    follower = Follower(["GoToLocal"], 16, 3)
    for _ in range(6):
        follower.observe()
        follower.step()
    follower.observe()
    tokens = tokenize_frames(
        frames_of(follower.memory, torch.from_numpy(follower.engine.missions)), follower.tables.vectors
    )
    grid = torch.zeros(16, (GRID * PATCH), (GRID * PATCH), dtype=torch.int32)
    frame = torch.bucketize(tokens.patch_at, tokens.ends[1:].long(), right=True)
    for k in range(PATCH * PATCH):
        up = tokens.patch_index // GRID * PATCH + k // PATCH
        across = tokens.patch_index % GRID * PATCH + k % PATCH
        grid[frame, up, across] = tokens.patches[:, 0, k]
    images = follower.engine.images
    seen = codes.CONTENTS[images[..., 0], images[..., 1], images[..., 2]]
    for column in range(7):
        for row in range(7):
            if (column, row) == (3, 6):
                continue
            shown = seen[:, column, row]
            drawn = grid[:, REACH + 6 - row, REACH + column - 3].numpy()
            np.testing.assert_array_equal(drawn[shown > 0], shown[shown > 0])


def test_an_agent_is_created_saved_and_loaded(tmp_path) -> None:
    agent = Agent.create("map", size="small", seed=1)
    agent.save(tmp_path / "agent")
    loaded = Agent.load(tmp_path / "agent", device="cpu")
    engine = Engine("GoToLocal", 4)
    engine.reset(0)
    for _ in range(5):
        observation = {"image": engine.images, "direction": engine.directions, "mission": engine.missions}
        actions = agent.act(observation)
        np.testing.assert_array_equal(actions, loaded.act(observation))
        engine.step(actions, skip_done=True)


@pytest.mark.parametrize("settings", [{"dim": 30}, {"layers": 0}, {"dim": 1 << 20}])
def test_impossible_settings_are_refused(settings: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="heads"):
        Agent.create("map", **settings)
    with pytest.raises(ValueError, match="must be a string"):
        Agent.create("map", without=3)
    with pytest.raises(ValueError, match="cannot do without 'compass'; choose from events"):
        Agent.create("map", without="events+compass")


def test_the_agent_of_the_package_plays(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    agent = Agent.load("map", device="cpu")
    assert evaluate(AgentPlayer(agent.model), "GoToObj", missions=32).success_rate > 0.9
    # A folder of that name is meant where there is one.
    monkeypatch.chdir(tmp_path)
    Agent.create("map", size="small").save("map")
    assert Agent.load("map", device="cpu").config != agent.config
    with pytest.raises(FileNotFoundError):
        Agent.load("./maps")
