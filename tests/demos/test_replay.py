"""Replay: batches are what a single world shows and earns when the demonstrations are played one after the other."""

import itertools
import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from babyai.batch import Batch
from babyai.demos.collect import collect
from babyai.demos.header import DemoFileError
from babyai.demos.packed import Demo
from babyai.demos.record import Recorder
from babyai.demos.replay import Replay
from babyai.demos.sources import ExpertSource, FileSource, Mixture, SelectedDemos
from babyai.demos.store import DemoFile
from babyai.engine import Engine
from babyai.render.blit import rgb_views
from babyai.seeds import VALIDATION_SEED
from babyai.tree import tree_map
from babyai.world.language import detokenize
from tests.scale import scaled

STEPS = 9
LANES = 5


def play_demo(demo: Demo, level: int, rules: Any = "paper", view_size: int = 7) -> Iterator[dict[str, Any]]:
    """What a single world shows and earns at each step of a demonstration, in the terms of `Batch`."""
    engine = Engine(demo.level, rules=rules, view_size=view_size)
    engine.reset([demo.seed])
    last_action = -1
    for step, action in enumerate(demo.actions.tolist()):
        shown = {
            "image": engine.images[0].tolist(),
            "direction": int(engine.directions[0]),
            "last_action": last_action,
            "mission": detokenize(engine.missions[0]),
            "start": step == 0,
        }
        engine.step([action])
        yield shown | {
            "action": action,
            "label": action,
            "reward": float(np.float32(engine.rewards[0])),
            "terminated": bool(engine.terminated[0]),
            "truncated": bool(engine.truncated[0]),
            "level": level,
            "seed": demo.seed,
        }
        last_action = action


def lane_of(batches: list[Batch], lane: int) -> Iterator[dict[str, Any]]:
    """The same, of one lane of consecutive batches."""
    for batch in batches:
        for step in range(batch.num_steps):
            yield {
                "image": batch.images[step, lane].tolist(),
                "direction": int(batch.directions[step, lane]),
                "last_action": int(batch.last_actions[step, lane]),
                "mission": detokenize(batch.missions[batch.mission_index[step, lane]]),
                "start": bool(batch.starts[step, lane]),
                "action": int(batch.actions[step, lane]),
                "label": int(batch.labels[step, lane]),
                "reward": float(batch.rewards[step, lane]),
                "terminated": bool(batch.terminated[step, lane]),
                "truncated": bool(batch.truncated[step, lane]),
                "level": int(batch.levels[step, lane]),
                "seed": int(batch.seeds[step, lane]),
            }


def fill(replay: Replay, count: int) -> list[Batch]:
    """The next batches, each in arrays of its own, without the background thread."""
    view_size = replay.engine.view_size
    buffers = [Batch.empty(replay.steps, replay.lanes, replay.kind, view_size) for _ in range(count)]
    return [replay.fill(buffer)[0] for buffer in buffers]


def copy(batch: Batch) -> Batch:
    """A batch that stays as it is when its buffer is reused."""
    return tree_map(np.copy, batch)


def assert_equal_batches(one: Batch, other: Batch) -> None:
    for field in fields(Batch):
        assert np.array_equal(getattr(one, field.name), getattr(other, field.name)), field.name


class RecordingSource:
    """A source that remembers the rows it returned, in order."""

    def __init__(self, source: FileSource) -> None:
        self.source = source
        self.levels = source.levels
        self.rules = source.rules
        self.rows: list[int] = []

    def take(self, count: int) -> SelectedDemos:
        demos = self.source.take(count)
        self.rows += demos.rows.tolist()
        return demos

    def __getattr__(self, name: str) -> Any:
        return getattr(self.source, name)


def assert_batches_are_demos(batches: list[Batch], demos: list[Demo], levels: list[str], **settings: Any) -> None:
    """Each lane is demonstrations end to end, in the order in which the source returned them, each used once."""
    numbers = {(levels.index(demo.level), demo.seed): number for number, demo in enumerate(demos)}
    assert len(numbers) == len(demos), "each demonstration is taken once, so that it can be identified"
    used = []
    for lane in range(batches[0].num_lanes):
        steps = list(lane_of(batches, lane))
        assert steps[0]["start"]
        order = [numbers[step["level"], step["seed"]] for step in steps if step["start"]]
        assert order == sorted(order)
        expected = itertools.chain.from_iterable(
            play_demo(demos[number], levels.index(demos[number].level), **settings) for number in order
        )
        # The last demonstration of a lane may go on after the last batch.
        for given, wanted in zip(steps, itertools.islice(expected, len(steps)), strict=True):
            assert given == wanted
        used += order
    assert sorted(used) == list(range(len(demos)))


# ------------------------------------------------------------ batches


@pytest.mark.parametrize("view_size", [7, 5])
def test_lanes_are_demonstrations_end_to_end(small_file: Path, view_size: int) -> None:
    source = RecordingSource(FileSource(small_file, seed=3))
    batches = fill(Replay(source, steps=STEPS, lanes=LANES, view_size=view_size), scaled(60, 4))
    with DemoFile(small_file) as file:
        demos = [file[row] for row in source.rows]
        assert_batches_are_demos(batches, demos, list(file.levels), view_size=view_size)


def test_episodes_can_end_in_success_or_failure(tmp_path: Path) -> None:
    """Picking up the wrong object ends an episode of this level as a failure."""
    path = tmp_path / "demos.parquet"
    generator = np.random.default_rng(0)
    demos = []
    for seed in range(scaled(30, 10)):
        recorder = Recorder("PickupDistDebug", seed)
        while not recorder.done:
            recorder.act(int(generator.integers(6)))
        recorder.save(path)
        demos.append(recorder.demo())
    steps = sum(len(demo) for demo in demos)
    (batch,) = fill(Replay(FileSource(path, shuffle=False), steps=steps, lanes=1), 1)
    assert_batches_are_demos([batch], demos, ["PickupDistDebug"])
    assert (batch.rewards[batch.terminated] > 0).any()
    assert (batch.rewards[batch.terminated] == 0).any()
    assert not batch.rewards[~batch.terminated].any()


def test_the_time_limit_truncates_an_episode(tmp_path: Path) -> None:
    path = tmp_path / "demos.parquet"
    recorder = Recorder("GoToLocal", 0)
    while not recorder.done:
        recorder.act(0)
    recorder.save(path)
    length = len(recorder.actions)
    (batch,) = fill(Replay(FileSource(path), steps=2 * length, lanes=1), 1)
    assert np.flatnonzero(batch.truncated[:, 0]).tolist() == [length - 1, 2 * length - 1]
    assert np.flatnonzero(batch.starts[:, 0]).tolist() == [0, length]
    assert not batch.terminated.any()
    assert not batch.rewards.any()


def test_missions_are_listed_once_per_episode(small_file: Path) -> None:
    for batch in fill(Replay(FileSource(small_file), steps=STEPS, lanes=LANES), 20):
        assert batch.mission_index[0].tolist() == list(range(LANES))
        assert sorted(set(batch.mission_index.ravel().tolist())) == list(range(len(batch.missions)))
        # After those that the batch begins with, one for each episode that starts later.
        assert len(batch.missions) == LANES + int(batch.starts[1:].sum())


@pytest.mark.parametrize("kind", ["symbolic", "rgb"])
def test_threads_and_prefetching_make_no_difference(small_file: Path, kind: Any) -> None:
    settings = {"steps": STEPS, "lanes": LANES, "kind": kind}
    plain = fill(Replay(FileSource(small_file), **settings), 8)
    for threads, prefetch in ((1, 1), (2, 2), (LANES + 2, 3)):
        with Replay(FileSource(small_file), **settings, threads=threads, prefetch=prefetch) as replay:
            for expected in plain:
                assert_equal_batches(next(replay), expected)


def test_rgb_frames_are_the_rendered_symbolic_views(small_file: Path) -> None:
    pixels = fill(Replay(FileSource(small_file), steps=STEPS, lanes=LANES, kind="rgb"), 4)
    symbols = fill(Replay(FileSource(small_file), steps=STEPS, lanes=LANES), 4)
    for rgb, symbolic in zip(pixels, symbols, strict=True):
        assert rgb.images.shape == (STEPS, LANES, 56, 56, 3)
        frames = rgb_views(symbolic.images.reshape(-1, 7, 7, 3)).reshape(rgb.images.shape)
        assert_equal_batches(rgb, replace(symbolic, images=frames))


def test_buffers_can_be_the_callers(small_file: Path) -> None:
    buffers = [Batch.empty(STEPS, LANES) for _ in range(2)]
    with Replay(FileSource(small_file), steps=STEPS, lanes=LANES, prefetch=1, buffers=buffers) as replay:
        batches = [next(replay) for _ in range(4)]
    assert {id(batch.images) for batch in batches} == {id(buffer.images) for buffer in buffers}
    with pytest.raises(ValueError, match=r"2 batches.*3 buffers, not 2"):
        Replay(FileSource(small_file), steps=STEPS, lanes=LANES, prefetch=2, buffers=buffers)


def test_a_batch_stays_valid_until_the_next_one_is_requested(small_file: Path) -> None:
    expected = fill(Replay(FileSource(small_file), steps=STEPS, lanes=LANES), 12)
    with Replay(FileSource(small_file), steps=STEPS, lanes=LANES, prefetch=1) as replay:
        for wanted in expected:
            batch = next(replay)
            before = copy(batch)
            # The other buffer is being filled meanwhile.
            threading.Event().wait(0.002)
            assert_equal_batches(batch, before)
            assert_equal_batches(batch, wanted)


@pytest.mark.parametrize("rules", ["paper", "minigrid"])
def test_carried_objects_appear_as_the_rules_say(tmp_path: Path, rules: Any) -> None:
    """Minigrid hands the object over after the first observation; a replay shows the same."""
    path = tmp_path / "demos.parquet"
    recorder = Recorder("PutNextS5N2Carrying", 3, rules)
    for action in itertools.cycle([0, 1]):
        if recorder.done:
            break
        recorder.act(action)
    recorder.save(path)
    (batch,) = fill(Replay(FileSource(path), steps=6, lanes=1), 1)
    assert_batches_are_demos([batch], [recorder.demo()], ["PutNextS5N2Carrying"], rules=rules)
    engine = Engine("PutNextS5N2Carrying", rules=rules)
    engine.reset([3])
    assert np.array_equal(batch.images[0, 0], engine.images[0])


def test_errors_in_the_background_reach_the_caller(small_file: Path) -> None:
    source = FileSource(small_file)
    source.demos = replace(source.demos, actions=np.zeros_like(source.demos.actions))
    with Replay(source, steps=40, lanes=LANES) as replay:
        for _ in range(2):
            with pytest.raises(DemoFileError, match=r"row \d+ .*(GoToLocal|BossLevel).*seed \d+.*babyai demos verify"):
                list(itertools.islice(replay, 50))


@pytest.mark.parametrize(
    ("settings", "fact"),
    [
        ({"steps": 0}, "steps.*at least 1, not 0, 2"),
        ({"lanes": 0}, "lanes.*at least 1, not 3, 0"),
        ({"threads": 0}, "threads.*at least 1"),
        ({"prefetch": 0}, "prefetch.*at least 1"),
        ({"kind": "smell"}, "'smell'.*'symbolic' or 'rgb'"),
    ],
)
def test_impossible_arguments_are_refused(small_file: Path, settings: dict[str, Any], fact: str) -> None:
    with pytest.raises(ValueError, match=fact):
        Replay(FileSource(small_file), **({"steps": 3, "lanes": 2} | settings))


# ------------------------------------------------------------ files


def take_rows(source: FileSource, count: int) -> list[int]:
    return [row for _ in range(count // 7) for row in source.take(7).rows.tolist()]


def test_every_pass_takes_each_row_once_in_an_order_of_its_own(small_file: Path) -> None:
    size = scaled(35, 7)
    source = FileSource(small_file, seed=1, demos=size)
    passes = np.array(take_rows(source, 4 * size)).reshape(4, size)
    assert all(sorted(rows) == list(range(size)) for rows in passes.tolist())
    assert source.passes == 4
    assert len({tuple(rows) for rows in passes.tolist()}) == 4
    assert take_rows(FileSource(small_file, seed=1, demos=size), 4 * size) == passes.ravel().tolist()
    assert take_rows(FileSource(small_file, seed=2, demos=size), 4 * size) != passes.ravel().tolist()
    assert take_rows(FileSource(small_file, demos=size, shuffle=False), 2 * size) == [*range(size)] * 2


@pytest.mark.parametrize("demos", [0, 10**6])
def test_a_file_must_have_as_many_demonstrations(small_file: Path, demos: int) -> None:
    with DemoFile(small_file) as file:
        count = len(file)
    with pytest.raises(ValueError, match=f"{count} demonstrations, not {demos}"):
        FileSource(small_file, demos=demos)


def test_levels_are_sampled_by_weight(small_file: Path) -> None:
    source = FileSource(small_file, weights={"BossLevel": 3.0, "GoToLocal": 1.0})
    levels = np.concatenate([source.take(50).levels for _ in range(80)])
    share = (levels == source.demos.names.index("BossLevel")).mean()
    assert 0.7 < share < 0.8


@pytest.mark.parametrize(
    ("weights", "fact"),
    [
        ({"Open": 1.0}, "'Open'"),
        ({"BossLevel": -1.0}, "-1.0"),
        ({"BossLevel": 0.0}, "0.0"),
        ({"BossLevel": float("nan")}, "nan"),
    ],
)
def test_impossible_weights_are_refused(small_file: Path, weights: dict[str, float], fact: str) -> None:
    with pytest.raises(ValueError, match=fact):
        FileSource(small_file, weights=weights)


def test_a_mixture_does_not_depend_on_how_many_are_taken_at_a_time() -> None:
    one = Mixture([1, 2, 3], 5)
    other = Mixture([1, 2, 3], 5)
    pieces = np.concatenate([one.take(count) for count in (0, 1, 700, 5, 2000)])
    assert np.array_equal(pieces, other.take(2706))
    assert one.position == other.position
    other.position = 701
    assert np.array_equal(other.take(5), pieces[701:706])


# ------------------------------------------------------------ the expert


@pytest.mark.parametrize("threads", [1, 2])
def test_endless_demonstrations_are_those_that_collecting_writes(tmp_path: Path, threads: int) -> None:
    count = scaled(64, 8)
    with DemoFile(collect("GoToLocal", count, 40, tmp_path / "x.parquet").path) as file:
        demos = file.read()
    source = ExpertSource("GoToLocal", first_seed=40, block=16, threads=threads)
    taken = [source.take(number) for number in (3, count - 4, 1)]
    source.close()
    assert np.concatenate([selected.seeds for selected in taken]).tolist() == demos.seeds.tolist()
    actions = [
        selected.actions[start : start + length].tolist()
        for selected in taken
        for start, length in zip(selected.starts, selected.lengths, strict=True)
    ]
    assert actions == [demo.actions.tolist() for demo in demos]


def test_endless_demonstrations_of_several_levels_have_consecutive_seeds() -> None:
    source = ExpertSource({"GoToLocal": 1.0, "Open": 3.0}, block=32, seed=4)
    selected = source.take(scaled(2000, 64))
    source.close()
    for level in (0, 1):
        seeds = selected.seeds[selected.levels == level]
        assert seeds.tolist() == list(range(len(seeds)))
    assert 0.6 < (selected.levels == 1).mean() < 0.9


def test_replayed_endless_demonstrations_are_the_experts(tmp_path: Path) -> None:
    batches_count = scaled(20, 3)
    with Replay(ExpertSource("GoToLocal", block=16), steps=STEPS, lanes=LANES) as replay:
        batches = [copy(next(replay)) for _ in range(batches_count)]
    seeds = {int(seed) for batch in batches for seed in batch.seeds.ravel()}
    with DemoFile(collect("GoToLocal", max(seeds) + 1, 0, tmp_path / "x.parquet").path) as file:
        demos = [demo for demo in file.read() if demo.seed in seeds]
    assert_batches_are_demos(batches, demos, ["GoToLocal"])


def test_seeds_reserved_for_validation_are_never_reached() -> None:
    source = ExpertSource("GoToLocal", first_seed=VALIDATION_SEED - 3, block=8)
    seeds = source.take(8).seeds
    source.close()
    assert (seeds - VALIDATION_SEED).tolist() == [-3, -2, -1, -3, -2, -1, -3, -2]


# ------------------------------------------------------------ resuming


SOURCES: dict[str, Callable[[Path], Any]] = {
    "file": lambda path: FileSource(path, seed=2),
    "weights": lambda path: FileSource(path, seed=2, weights={"BossLevel": 1.0, "GoToLocal": 2.0}),
    "expert": lambda path: ExpertSource({"GoToLocal": 2.0, "Open": 1.0}, block=16, seed=2),
}


@pytest.mark.parametrize(("source", "kind"), [*((source, "symbolic") for source in SOURCES), ("file", "rgb")])
def test_a_resumed_replay_continues_with_the_same_batches(small_file: Path, source: str, kind: Any) -> None:
    make = SOURCES[source]
    settings = {"steps": STEPS, "lanes": LANES, "kind": kind}
    with Replay(make(small_file), **settings) as replay:
        for _ in range(7):
            next(replay)
        state = json.loads(json.dumps(replay.state_dict()))
        expected = [copy(next(replay)) for _ in range(6)]
    # Some lanes are resumed in the middle of an episode, whose last action is then known.
    assert (expected[0].last_actions[0] >= 0).any()
    with Replay(make(small_file), **settings) as other:
        next(other)
        other.load_state_dict(state)
        assert other.state_dict() == state
        for batch in expected:
            assert_equal_batches(next(other), batch)


@pytest.mark.parametrize("source", SOURCES)
def test_a_new_replay_can_be_resumed_at_its_start(small_file: Path, source: str) -> None:
    make = SOURCES[source]
    with Replay(make(small_file), steps=STEPS, lanes=LANES) as replay:
        state = json.loads(json.dumps(replay.state_dict()))
        expected = copy(next(replay))
    with Replay(make(small_file), steps=STEPS, lanes=LANES) as other:
        for _ in range(3):
            next(other)
        other.load_state_dict(state)
        assert_equal_batches(next(other), expected)


def test_fill_returns_the_position_after_its_batch(small_file: Path) -> None:
    replay = Replay(FileSource(small_file), steps=STEPS, lanes=LANES)
    fill(replay, 3)
    _, position = replay.fill(Batch.empty(STEPS, LANES))
    state = {key: value.tolist() if isinstance(value, np.ndarray) else value for key, value in position.items()}
    assert state == replay.state_dict()
    (expected,) = fill(replay, 1)
    other = Replay(FileSource(small_file), steps=STEPS, lanes=LANES)
    other.load_state_dict(position)
    assert_equal_batches(fill(other, 1)[0], expected)


def test_positions_of_other_replays_are_refused(tmp_path: Path, small_file: Path) -> None:
    replay = Replay(FileSource(small_file), steps=STEPS, lanes=LANES)
    fill(replay, 3)
    state = replay.state_dict()
    with pytest.raises(ValueError, match=r"5 lanes.* 4"):
        Replay(FileSource(small_file), steps=STEPS, lanes=4).load_state_dict(state)
    with Replay(ExpertSource("GoToLocal", block=8), steps=STEPS, lanes=LANES) as other:
        with pytest.raises(ValueError, match="another source"):
            other.load_state_dict(state)
        # After the refusal it still works.
        next(other)
    other_file = collect("GoToLocal", scaled(600, 12), 5, tmp_path / "x.parquet").path
    with pytest.raises(ValueError, match="another file"):
        Replay(FileSource(other_file), steps=STEPS, lanes=LANES).load_state_dict(state)


@pytest.mark.parametrize(
    ("key", "value"), [("levels", 9), ("levels", -1), ("seeds", -5), ("at", -1), ("at", 10**6), ("rows", 10**9)]
)
def test_damaged_positions_are_refused(small_file: Path, key: str, value: int) -> None:
    """They come from run folders; compiled code would trust them."""
    for source in (FileSource(small_file), ExpertSource("GoToLocal", block=8)):
        with Replay(source, steps=STEPS, lanes=LANES) as replay:
            fill(replay, 2)
            state = replay.state_dict()
            if key == "rows" and isinstance(source, ExpertSource):
                continue
            state[key] = [value] * LANES
            state["at"] = [max(1, at) if key != "at" else at for at in state["at"]]
            with pytest.raises(ValueError, match=r"position|seed"):
                replay.load_state_dict(state)
