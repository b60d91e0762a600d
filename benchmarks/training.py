"""Training speed on this machine, and where the time goes.

    python -m benchmarks.training ppo many imitation big evaluation --out OUT
    python -m benchmarks.training --collect OUT/training.json

Each figure covers the whole loop (worlds, replay, acting, gradient steps) without validation, after a warm-up, best of
three. `--collect` appends a measurement to results/training.json.
"""

import argparse
import json
import multiprocessing
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import torch

from babyai.agents.config import AgentConfig
from babyai.agents.device import find_device, find_precision, place_model
from babyai.agents.film_lstm.model import FilmLSTM
from babyai.demos.collect import collect
from babyai.demos.sources import FileSource
from babyai.engine import Engine
from babyai.evaluation.evaluate import evaluate
from babyai.evaluation.players import AgentPlayer
from babyai.training.imitation import FIELDS, ImitationLearner, count_lanes, make_replay
from babyai.training.options import ImitationOptions, PPOHyperparameters
from babyai.training.parallel import MPS_SHARE, gpu_share, mps_daemon
from babyai.training.ppo import PPO
from babyai.training.prefetch import Prefetcher
from babyai.training.provenance import describe_provenance

Size = Literal["small", "big"]

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "results" / "training.json"
ROUNDS = 3
# Seconds after which a process of `measure_many` that has not reported is considered lost.
MAX_SECONDS = 600


def make_model(size: Size, device: torch.device, seed: int = 0) -> torch.nn.Module:
    """A new agent on the device."""
    torch.manual_seed(seed)
    return place_model(FilmLSTM(AgentConfig.of(size=size)), device)


def wait(device: torch.device) -> None:
    """Waits for the device to finish."""
    if device.type == "cuda":
        torch.cuda.current_stream().synchronize()


def seconds_of(work: Callable[[], object], repeats: int, device: torch.device) -> float:
    """The time that `repeats` calls take, in the best of a few rounds."""
    times = []
    for _ in range(ROUNDS):
        wait(device)
        began = time.perf_counter()
        for _ in range(repeats):
            work()
        wait(device)
        times.append(time.perf_counter() - began)
    return min(times)


def make_ppo(seed: int, device: torch.device, level: str = "GoToLocal") -> PPO:
    """PPO with a new agent at the paper's settings."""
    hyper = PPOHyperparameters()
    engine = Engine(level, hyper.worlds)
    engine.reset(100 * seed)
    return PPO(make_model("small", device, seed), engine, hyper, seed=seed, precision=find_precision(None, device))


def measure_ppo(device: torch.device, updates: int) -> dict[str, Any]:
    """One run at the paper's settings."""
    ppo = make_ppo(0, device)
    for _ in range(updates):
        ppo.update()
    frames = updates * ppo.hyper.frames_per_update
    seconds = seconds_of(ppo.update, updates, device)
    acting = seconds_of(ppo.collector.collect, updates, device)
    worlds = seconds_of(lambda: step_worlds(ppo), updates, device)
    each = {"whole": seconds, "acting": acting, "worlds": worlds}
    return {
        "frames_per_second": frames / seconds,
        "ms_an_update": {name: 1e3 * value / updates for name, value in each.items()},
    }


def step_worlds(ppo: PPO) -> None:
    """The worlds' part of acting."""
    engine = ppo.collector.engine
    for _ in range(ppo.hyper.steps):
        engine.step(ppo.generator.integers(0, 7, ppo.hyper.worlds))
        engine.reset_done()


def measure_many(device: torch.device, updates: int, count: int = 8) -> dict[str, Any]:
    """Several seeds in parallel, one process each, with NVIDIA's Multi-Process Service where there is one."""
    context = multiprocessing.get_context("spawn")
    barrier = context.Barrier(count)
    times = context.Queue()
    with mps_daemon(str(device), gpu_share("ppo", count)) as mps:
        share = os.environ.get(MPS_SHARE)
        processes = [
            context.Process(target=run_seed, args=(seed, str(device), updates, barrier, times)) for seed in range(count)
        ]
        for process in processes:
            process.start()
        rounds = [times.get(timeout=MAX_SECONDS) for _ in range(count * ROUNDS)]
        for process in processes:
            process.join()
    slowest = [max(seconds for number, seconds in rounds if number == wanted) for wanted in range(ROUNDS)]
    frames = count * updates * PPOHyperparameters().frames_per_update
    limit = {"share": int(share)} if mps and share else {}
    return {"seeds": count, "mps": mps, **limit, "frames_per_second": frames / min(slowest)}


def run_seed(seed: int, device_name: str, updates: int, barrier: Any, times: Any) -> None:
    """One process of `measure_many`."""
    torch.set_num_threads(1)
    device = find_device(device_name)
    ppo = make_ppo(seed, device)
    for _ in range(max(5, updates // 4)):
        ppo.update()
    for number in range(ROUNDS):
        wait(device)
        barrier.wait()
        began = time.perf_counter()
        for _ in range(updates):
            ppo.update()
        wait(device)
        times.put((number, time.perf_counter() - began))
        barrier.wait()


def measure_imitation(device: torch.device, updates: int, size: Size, level: str, demos: int) -> dict[str, Any]:
    """Imitation from a file at the paper's settings."""
    hyper = ImitationOptions(levels=level, size=size, demos=demos).resolve()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "demos.parquet"
        collect(level, demos, 0, path)
        source = FileSource(path)
    lanes = count_lanes(hyper, source)
    with make_replay(hyper, source, lanes, device) as replay:
        batches = Prefetcher(replay, device, FIELDS)
        precision = find_precision(None, device)
        policy = make_model(size, device)
        learner = ImitationLearner(policy, lanes, entropy_coef=hyper.entropy_coef, precision=precision)
        for _ in range(max(10, updates // 4)):
            learner.learn(next(batches))
        seconds = seconds_of(lambda: learner.learn(next(batches)), updates, device)
        batch = next(batches)
        alone = seconds_of(lambda: learner.learn(batch), updates, device)
    frames = updates * lanes * hyper.recurrence
    return {
        "level": level,
        "lanes": lanes,
        "frames_per_second": frames / seconds,
        "ms_an_update": 1e3 * seconds / updates,
        "update_alone_frames_per_second": frames / alone,
    }


def measure_evaluation(device: torch.device) -> dict[str, Any]:
    """512 BossLevel missions by an untrained big agent, so that most of them take all their steps."""
    player = AgentPlayer(make_model("big", device))
    results = [evaluate(player, "BossLevel", missions=512) for _ in range(2)]
    return {"seconds": [result.seconds for result in results], "steps": float(results[1].lengths.sum())}


def collect_measurement(path: Path, results: Path = RESULTS) -> None:
    """Appends a measurement to the stored ones, as a group of its own."""
    content = json.loads(results.read_text(encoding="utf-8"))
    group = chr(max(ord(entry["group"]) for entry in content["measurements"]) + 1)
    content["measurements"].append({"group": group, **json.loads(path.read_text(encoding="utf-8"))})
    results.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def main() -> None:
    """Runs the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="*", choices=["ppo", "many", "imitation", "big", "evaluation", []])
    parser.add_argument("--out", type=Path, default=Path("."), help="Output folder; the file is training.json.")
    parser.add_argument("--device", default="auto", help="Device: auto, cpu, cuda (default: auto).")
    parser.add_argument("--scale", type=float, default=1.0, help="Factor on the number of updates (default: 1).")
    parser.add_argument("--collect", type=Path, help="Measurement to append to results/training.json.")
    arguments = parser.parse_args()
    if arguments.collect is not None:
        collect_measurement(arguments.collect)
        return
    device = find_device(arguments.device)
    scale = arguments.scale
    measures: dict[str, Callable[[], dict[str, Any]]] = {
        "ppo": lambda: measure_ppo(device, round(80 * scale)),
        "many": lambda: measure_many(device, round(40 * scale)),
        "imitation": lambda: measure_imitation(device, round(600 * scale), "small", "GoToLocal", 50_000),
        "big": lambda: measure_imitation(device, round(25 * scale), "big", "BossLevel", 20_000),
        "evaluation": lambda: measure_evaluation(device),
    }
    results: dict[str, Any] = {"origin": describe_provenance()}
    for name in arguments.what:
        results[name] = measures[name]()
        print(name, json.dumps(results[name]), flush=True)
        (arguments.out / "training.json").write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
