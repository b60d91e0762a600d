"""DAgger: the agent's lanes are real episodes, labeled as the expert would act, and no interruption changes a run."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from babyai.agents.config import AgentConfig
from babyai.agents.model import Model
from babyai.agents.unroll import Steps, Unroller
from babyai.demos.replay import Chunk, Replay
from babyai.demos.sources import RESERVED, ExpertSource, FileSource
from babyai.engine import Engine
from babyai.expert.expert import ExpertBatch
from babyai.levels.catalog import Rules, find_level
from babyai.training import labeled
from babyai.training.dagger import FIRST_SEED, DaggerOptions, train
from babyai.training.feed import Feed
from babyai.training.grown import GrowingSource, demonstrate
from babyai.training.labeled import LabeledPlay, MixedChunks
from babyai.training.run import read_rows
from tests.training.same import assert_same_run
from tests.training.tiny import PATH, Tiny

Pretend = Callable[[list[float]], list[tuple[str, int]]]
SHOWN, ACTING, STEPS = 2, 3, 12
# In these, a box that the mission asks for can be opened, and then it is gone.
LEVELS = ["PutNextLocalS5N3", "PutNextS4N1"]


def tiny(out: Path, **changes: Any) -> DaggerOptions:
    """A run of a second or less."""
    settings: dict[str, Any] = {"levels": "GoToObjS4", "demos": 40, "architecture": PATH, "batch": 4, "recurrence": 5}
    settings |= {"epoch_demos": 16, "epochs": 2, "validation_missions": 4, "learning_rate": 1e-2, "device": "cpu"}
    return DaggerOptions(**settings | {"out": str(out), "quiet": True, "threads": 1} | changes)


def make_model(architecture: str = "", **settings: Any) -> torch.nn.Module:
    torch.manual_seed(0)
    if not architecture:
        return Tiny()
    model = Model(AgentConfig.of(architecture, memory_dim=16, **settings))
    # A new network remembers about the same whatever it sees; this one is excitable.
    with torch.no_grad():
        for parameter in model.memory.parameters():  # pyright: ignore[reportOptionalMemberAccess]
            parameter *= 8
    return model


def make_chunks(model: torch.nn.Module, levels: list[str] = LEVELS, **settings: Any) -> MixedChunks:
    kind = "rgb" if isinstance(model, Model) and model.config.pixels else "symbolic"
    source = ExpertSource(levels, block=8)
    replay = Replay(source, steps=STEPS, lanes=SHOWN, kind=kind)
    play = LabeledPlay(model, ACTING, source.levels, first_seed=FIRST_SEED, **settings)
    return MixedChunks(replay, play)


def copy(chunk: Chunk) -> Chunk:
    arrays = {name: value.copy() for name, value in vars(chunk).items() if isinstance(value, np.ndarray)}
    return replace(chunk, **arrays)


def take(chunks: MixedChunks, count: int) -> list[Chunk]:
    return [copy(next(chunks)) for _ in range(count)]


def cells_of(chunks: list[Chunk], lane: int):
    """All steps of a lane: image, direction, label, what was done, whether it is the first, mission, level, seed."""
    for chunk in chunks:
        assert chunk.taken is not None
        for step, number in enumerate(chunk.mission_index[:, lane]):
            arrays = (chunk.images, chunk.directions, chunk.actions, chunk.taken, chunk.first)
            yield (
                *(array[step, lane] for array in arrays),
                *(chunk.missions[number], int(chunk.levels[number]), int(chunk.seeds[number])),
            )


# ------------------------------------------------------------ what the chunks hold


@pytest.mark.parametrize("rules", ["paper", "minigrid"])
def test_every_cell_is_a_step_of_an_episode_with_the_label_of_a_fresh_teacher(rules: Rules) -> None:
    source = ExpertSource(LEVELS, rules=rules, block=8)
    replay = Replay(source, steps=STEPS, lanes=SHOWN)
    play = LabeledPlay(make_model(), 8, source.levels, rules=rules, first_seed=FIRST_SEED, seed=3)
    mixed = MixedChunks(replay, play)
    chunks = take(mixed, 20)
    mixed.close()
    seeds, abandoned, ended = [], 0, 0
    for lane in range(SHOWN, SHOWN + 8):
        engine, over = Engine(source.levels, rules=rules), True
        expert = None
        for image, direction, label, taken, first, mission, level, seed in cells_of(chunks, lane):
            if first:
                if expert is not None and not over:
                    assert expert.advise()[0] == -1
                    abandoned += 1
                engine.worlds.level = level
                engine.reset([seed])
                expert = ExpertBatch(engine, "teacher")
                seeds.append(seed)
            assert expert is not None and first == (engine.worlds[0].step_count == 0)
            assert np.array_equal(image, engine.images[0]) and direction == engine.directions[0]
            assert np.array_equal(mission, engine.missions[0])
            assert label == expert.advise()[0]
            engine.step([taken])
            over = bool(engine.done[0])
            ended += over
    told = play.measures()
    assert told["abandoned_episodes"] >= abandoned > 3 and told["played_episodes"] == ended > 0
    assert told["labelled_frames"] == 20 * STEPS * 8
    assert 0 <= told["played_success"] < 1
    # The missions of a run, each of them once; some may have been abandoned before their first step.
    assert len(set(seeds)) == len(seeds) and set(seeds) <= set(range(FIRST_SEED, FIRST_SEED + play._begun))


def test_the_other_lanes_are_the_replays() -> None:
    mixed, alone = make_chunks(make_model()), Replay(ExpertSource(LEVELS, block=8), steps=STEPS, lanes=SHOWN)
    for _ in range(6):
        chunk, shown = next(mixed), next(alone)
        assert chunk.taken is not None
        for name in ("images", "directions", "actions", "first"):
            assert np.array_equal(getattr(chunk, name)[:, :SHOWN], getattr(shown, name))
        assert np.array_equal(chunk.taken[:, :SHOWN], shown.actions)
        for name in ("mission_table", "levels", "seeds"):
            ours, theirs = getattr(chunk, name)[chunk.mission_index[:, :SHOWN]], getattr(shown, name)
            assert np.array_equal(ours, theirs[shown.mission_index])
        # As a chunk promises: the missions of the first step come first, and each row is in use.
        assert chunk.mission_index[0].tolist() == list(range(SHOWN + ACTING))
        assert set(chunk.mission_index.flatten().tolist()) == set(range(chunk.count))
    mixed.close()
    alone.close()


@pytest.mark.parametrize(
    ("architecture", "settings"),
    [("", {}), ("bow_endpool_res", {"last_action": True, "direction": True}), ("pixels_endpool_res", {})],
)
def test_what_learns_comes_to_remember_what_acted(architecture: str, settings: dict[str, Any]) -> None:
    model = make_model(architecture, **settings)
    mixed = make_chunks(model)
    feed = Feed(mixed, torch.device("cpu"))
    model.eval()
    unroll, lanes = Unroller(model), SHOWN + ACTING
    memory, last = model.initial_memory(lanes), torch.full((1, lanes), -1)  # pyright: ignore[reportCallIssue]
    for _ in range(4):
        fed = next(feed)
        before = torch.where(fed.first, -1, torch.cat([last, fed.taken[:-1].long()]))
        steps = Steps(fed.images, fed.directions, before, fed.first, fed.missions, fed.mission_index)
        with torch.no_grad():
            memory = unroll(steps, memory).memory
        torch.testing.assert_close(memory[SHOWN:], mixed.play.actor.memory, rtol=0, atol=2e-4)
        assert fed.first.any() and not torch.equal(fed.taken, fed.actions)
        last = fed.taken[-1:].long()
    mixed.close()


def test_acting_leaves_the_network_as_it_was() -> None:
    model = make_model("bow_endpool_res")
    before = {name: value.clone() for name, value in model.state_dict().items()}
    modes: list[bool] = []
    model.see.register_forward_pre_hook(lambda module, _: modes.append(module.training))
    mixed = make_chunks(model)
    next(mixed)
    assert modes and not any(modes)
    assert all(module.training for module in model.modules())
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    mixed.close()


def test_acting_follows_what_is_learnt() -> None:
    model = make_model("bow_endpool_res")
    mixed = make_chunks(model, precision="bf16", greedy=True)
    for action in (2, 5):
        with torch.no_grad():
            model.actor[2].weight.zero_()  # pyright: ignore
            model.actor[2].bias.copy_(torch.arange(7) == action)  # pyright: ignore
        chunk = next(mixed)
        assert chunk.taken is not None and (chunk.taken[:, SHOWN:] == action).all()
    mixed.close()


def test_drawn_or_likeliest() -> None:
    done = {}
    for greedy in (False, True):
        mixed = make_chunks(make_model(), greedy=greedy)
        done[greedy] = {
            int(cell[3]) for chunk in take(mixed, 3) for lane in (2, 3, 4) for cell in cells_of([chunk], lane)
        }
        mixed.close()
    assert len(done[False]) == 7 and len(done[True]) < 7


def test_levels_come_up_by_weight_and_seeds_stay_below_those_of_validation() -> None:
    levels = [find_level(name) for name in ("GoToObjS4", "GoToLocalS5N2")]
    play = LabeledPlay(Tiny(), 64, levels, weights=[1, 3], first_seed=RESERVED - 500)
    seeds, places = [], []
    for _ in range(40):
        play._begin(np.ones(64, dtype=bool))
        seeds += play.engine.worlds.seed.tolist()
        places += play.engine.worlds.level.tolist()
    assert 0.7 < np.mean(places) < 0.8
    assert set(seeds) == set(range(RESERVED - 500, RESERVED))
    assert DaggerOptions(demos=1, seed=49).first_seed + 10**7 <= RESERVED
    assert DaggerOptions(demos=1, seed=50).first_seed == FIRST_SEED


def test_missions_that_are_hopeless_from_the_start_are_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    advise, calls = ExpertBatch.advise, []

    def sometimes(self: ExpertBatch, taken: np.ndarray | None = None) -> np.ndarray:
        calls.append(1)
        advice = advise(self, taken)
        advice[1] = advice[1] if len(calls) > 4 else -1
        return advice

    monkeypatch.setattr(ExpertBatch, "advise", sometimes)
    mixed = make_chunks(make_model(), ["GoToObjS4"])
    chunk = next(mixed)
    assert chunk.first[0].all()
    assert chunk.seeds[SHOWN : SHOWN + ACTING].tolist() == [FIRST_SEED, FIRST_SEED + 6, FIRST_SEED + 2]
    assert mixed.play.measures()["abandoned_episodes"] == 4
    monkeypatch.setattr(ExpertBatch, "advise", lambda *_: np.full(ACTING, -1))
    monkeypatch.setattr(labeled, "MOST_ABANDONED", 5)
    with pytest.raises(RuntimeError, match="no way in 5 missions in a row; the levels are GoToObjS4"):
        next(mixed)
    mixed.close()


# ------------------------------------------------------------ positions


@pytest.mark.parametrize(("architecture", "levels"), [("", LEVELS), ("bow_endpool_res", ["GoToLocalS5N2"])])
def test_a_position_leads_back_to_the_same_chunks(architecture: str, levels: list[str]) -> None:
    settings = {"last_action": True} if architecture else {}
    one, other = (make_chunks(make_model(architecture, **settings), levels) for _ in range(2))
    for before in (1, 0, 2):
        take(one, before)
        other.load_state_dict(json.loads(json.dumps(one.state_dict())))
        for ours, theirs in zip(take(one, 3), take(other, 3), strict=True):
            assert ours.count == theirs.count
            for name in ("images", "directions", "actions", "taken", "first", "mission_index", "missions"):
                assert np.array_equal(getattr(ours, name), getattr(theirs, name)), name
        assert one.state_dict() == other.state_dict()
    one.close()
    other.close()
    fewer = LabeledPlay(make_model(), 2, [find_level(levels[0])])
    with pytest.raises(ValueError, match="one of 3 worlds, and here are 2"):
        fewer.load_state_dict(one.play.state_dict())


def test_a_position_at_the_beginning_of_an_episode() -> None:
    # There, the thing that the agent holds is seen on the floor until the first step.
    rules: Rules = "minigrid"
    level, chunks = find_level("PutNextS5N2Carrying", rules), []
    one, other = (LabeledPlay(make_model(), ACTING, [level], rules=rules, first_seed=first) for first in (50, 70))
    other.load_state_dict(one.state_dict())
    for play in (one, other):
        chunks.append(Chunk.empty(STEPS, ACTING))
        chunks[-1].taken, chunks[-1].count = np.empty_like(chunks[-1].actions), ACTING
        play.fill(chunks[-1], 0)
    assert np.array_equal(chunks[0].images, chunks[1].images) and chunks[0].first[0].all()


# ------------------------------------------------------------ demonstrations that grow


def rows_of(source: FileSource, count: int) -> list[int]:
    return source.take(count).rows.tolist()


def test_a_source_grows_by_the_experts_demonstrations(demo_file: Path) -> None:
    source, plain = GrowingSource(demo_file, demos=10, seed=2), FileSource(demo_file, demos=10, seed=2)
    # Until it grows, it is what it is without.
    assert rows_of(source, 5) == rows_of(plain, 5)
    seeds = np.array([500, 600, 700])
    assert source.grow(np.zeros(3, dtype=np.int64), seeds) == 3
    assert sorted(rows_of(source, 13)) == sorted(rows_of(source, 13)) == list(range(13))
    assert rows_of(source, 13) != rows_of(source, 13)
    fresh = ExpertSource("GoToObjS4", first_seed=600, block=1).take(1)
    recalled = source.recall(np.array([11]), np.array([0]), np.array([600]))
    shown = recalled.actions[recalled.starts[0] :][: recalled.lengths[0]]
    assert shown.tolist() == fresh.actions[: fresh.lengths[0]].tolist()
    assert source.added_frames == int(source.demos.lengths[10:].sum()) > 0
    assert source.growths == 1 and source.grow(np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)) == 0


def test_no_demonstration_is_always_the_last_to_come(demo_file: Path) -> None:
    source = GrowingSource(demo_file)
    ends = []
    for count in range(4):
        ends.append(rows_of(source, 40 + count)[-8:])
        source.grow(np.zeros(1, dtype=np.int64), np.array([1000 + count]))
    assert all(len(set(one) & set(other)) < 5 for one, other in zip(ends[1:], ends, strict=False))


def test_a_position_brings_back_what_had_been_added(demo_file: Path) -> None:
    one, other = GrowingSource(demo_file, demos=10), GrowingSource(demo_file, demos=10)
    for count in range(3):
        one.grow(np.zeros(count, dtype=np.int64), 1000 + 10 * count + np.arange(count))
        one.take(7)
        state = json.loads(json.dumps(one.state()))
        other.load(state)
        assert len(other.demos) == len(one.demos) and other.growths == one.growths
        assert rows_of(one, 40) == rows_of(other, 40) and one.state() == other.state()
        # Also back from where more had been added, and where nothing has to be made.
        one.load(state)
        assert np.array_equal(one.demos.actions, other.demos.actions)
    other.load(GrowingSource(demo_file, demos=10).state())
    assert len(other.demos) == 10 and other.growths == 0
    with pytest.raises(ValueError, match="another source"):
        other.load(FileSource(demo_file, demos=10).state())


def test_missions_that_the_expert_fails_are_not_added(monkeypatch: pytest.MonkeyPatch) -> None:
    play = ExpertBatch.demonstrate

    def fail_first(self: ExpertBatch) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        actions, lengths, rewards = play(self)
        rewards[0] = 0
        return actions, lengths, rewards

    monkeypatch.setattr(ExpertBatch, "demonstrate", fail_first)
    levels = [find_level("GoToObjS4"), find_level("GoToLocalS5N2")]
    demos = demonstrate(levels, "paper", np.array([0, 1, 1]), np.array([5, 6, 7]))
    assert demos.levels.tolist() == [1, 1] and demos.seeds.tolist() == [6, 7]
    assert demos.names == ("GoToObjS4", "GoToLocalS5N2")


# ------------------------------------------------------------ runs


@pytest.mark.compiled
def test_the_agent_learns_from_its_own_states(tmp_path: Path) -> None:
    # Two demonstrations teach next to nothing: what is learned comes from the labels.
    options = tiny(tmp_path / "run", demos=2, share=0.9, batch=32, epoch_demos=1600, epochs=4, validation_missions=64)
    rows = train(options).run.rows()
    assert rows[-1]["success"] > 0.8 and rows[-1]["loss"] < 0.5 * rows[0]["loss"]
    assert rows[-1]["played_success"] > rows[0]["played_success"]


def test_rows_tell_how_many_frames_were_labeled_for_the_agent(tmp_path: Path, pretend: Pretend) -> None:
    asked = pretend([0.5])
    for share, expected in ((0.25, 0.25), (0.001, None), (0.999, None)):
        session = train(tiny(tmp_path / f"{share}", share=share, batch=40, recurrence=4, epoch_demos=80))
        first, last = session.run.rows()
        lanes = first["frames"] / 2 / 4
        acting = first["labelled_frames"] / 2 / 4
        assert 1 <= acting <= lanes - 1 and acting == int(acting)
        assert expected is None or acting == round(expected * lanes)
        assert last["labelled_frames"] == 2 * first["labelled_frames"]
    assert all(first_seed >= RESERVED for _, first_seed in asked)


def test_a_batch_of_one_lane_becomes_two(tmp_path: Path, pretend: Pretend) -> None:
    pretend([0.5])
    rows = train(tiny(tmp_path / "run", batch=1, recurrence=20, epoch_demos=3)).run.rows()
    assert rows[0]["frames"] == 3 * 20 * 2 and rows[0]["labelled_frames"] == 3 * 20


def test_failed_missions_are_demonstrated(tmp_path: Path, pretend: Pretend) -> None:
    pretend([0.5])
    options = tiny(tmp_path / "run", variant="missions", levels="GoToObjS4,GoToLocalS5N2", demos=6, seed=1, probe=16)
    session = train(replace(options, grow=5, epochs=3))
    rows = session.run.rows()
    assert [row["added_demos"] for row in rows] == [4, 4, 4]
    assert [row["training_demos"] for row in rows] == [16, 20, 24]
    assert all(0 <= row["probed_success"] < 0.8 for row in rows)
    source = GrowingSource(session.folder / "demos.parquet")
    kept = session.run.latest()
    assert kept is not None
    source.load(kept[2]["replay"]["source"])
    assert source.added_frames == rows[-1]["labelled_frames"]
    for number in range(2):
        seeds = source.demos.seeds[12:][source.demos.levels[12:] == number]
        # Two of each level after each epoch, from 16 new missions each time.
        assert [(seed - options.first_seed) // 16 for seed in seeds] == [0, 0, 1, 1, 2, 2]
        assert options.first_seed == FIRST_SEED + 10**7
    # Those that the agent could do are not among them.
    assert len(set(source.demos.seeds[12:].tolist())) > 6


RUNS: dict[str, dict[str, Any]] = {
    "states": {"levels": ",".join(LEVELS), "weights": "1,2", "demos": 10},
    "states of endless demonstrations": {"demos": None, "endless": True},
    "states seen by the paper's network": {"architecture": "bow_endpool_res", "memory_dim": 16, "last_action": True},
    "missions": {"variant": "missions", "levels": "GoToObjS4,GoToLocalS5N2", "demos": 6, "probe": 8},
}


@pytest.mark.parametrize(
    "settings",
    # Without the compiler, demonstrations without end take too long.
    [pytest.param(run, id=name, marks=pytest.mark.compiled if "endless" in run else ()) for name, run in RUNS.items()],
)
def test_a_resumed_run_ends_as_an_undisturbed_one(tmp_path: Path, settings: dict[str, Any]) -> None:
    options = tiny(tmp_path / "whole", epochs=3, **settings)
    train(options)
    parted = replace(options, out=str(tmp_path / "parted"))
    train(replace(parted, epochs=1))
    train(replace(parted, resume=True, epochs=2))
    train(replace(parted, resume=True))
    assert_same_run(tmp_path / "whole", tmp_path / "parted")
    assert read_rows(tmp_path / "whole")[-1]["labelled_frames"] > 0


def test_bad_options() -> None:
    with pytest.raises(ValueError, match="say what to learn from"):
        DaggerOptions()
    with pytest.raises(ValueError, match="unknown variant 'both'; DAgger learns from 'states' or from 'missions'"):
        DaggerOptions(demos=1, variant="both")  # pyright: ignore[reportArgumentType]
    for share in (0.0, 1.0, -1.0, float("nan")):
        with pytest.raises(ValueError, match="must lie between 0 and 1, not be"):
            DaggerOptions(demos=1, share=share)
    with pytest.raises(ValueError, match="endless demonstrations cannot grow"):
        DaggerOptions(endless=True, variant="missions")
    for probe in (0, 10**7):
        with pytest.raises(ValueError, match=f"can be probed, not {probe}"):
            DaggerOptions(demos=1, probe=probe)
    with pytest.raises(ValueError, match="at least 1 at a time, not by 0"):
        DaggerOptions(demos=1, grow=0)
