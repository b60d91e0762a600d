"""Agents as files: what is written comes back; damage, crashes and full disks lead to an error or the whole file."""

import errno
import json
import os
import pickle
import resource
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import safetensors
import torch
from torch import Tensor, nn

import babyai
from babyai.agents import checkpoint
from babyai.agents.checkpoint import (
    CheckpointError,
    find_checkpoint,
    load_config,
    load_policy,
    load_tensors,
    load_weights,
    read_tensors,
    save_agent,
    write_tensors,
)
from babyai.agents.config import AgentConfig, CustomConfig
from babyai.agents.custom import build_policy
from babyai.agents.device import place_model
from babyai.atomic_io import remove_temporaries
from tests.test_atomic_io import KilledError, KillSwitch

MODEL = "model.safetensors"
SMALL = AgentConfig.of("original", memory_dim=8, word_dim=8)
MIB = 2**20


def some_tensors(seed: int = 0) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return {
        "weight": torch.randn(300, 70, generator=generator),
        "bias": torch.randn(5, generator=generator),
        "count": torch.tensor(2**40 + seed),
        "mask": torch.tensor([True, False]),
        "empty": torch.zeros(0, 3),
        "double": torch.randn(3, generator=generator, dtype=torch.float64),
    }


def equal(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return one.keys() == other.keys() and all(
        value.dtype == other[key].dtype and torch.equal(value, other[key]) for key, value in one.items()
    )


@pytest.fixture
def model() -> nn.Module:
    torch.manual_seed(1)
    return build_policy(SMALL)


@pytest.fixture
def saved(tmp_path: Path, model: nn.Module) -> Path:
    save_agent(tmp_path / "agent", model, SMALL)
    return tmp_path / "agent"


def rewrite_metadata(folder: Path, **changes: str) -> None:
    """Writes a checkpoint again with other metadata, and a checksum that fits."""
    tensors, metadata = read_tensors(folder / MODEL)
    write_tensors(folder / MODEL, tensors, metadata | changes)


# ------------------------------------------------------------ tensors


def test_tensors_and_metadata_come_back(tmp_path: Path) -> None:
    write_tensors(tmp_path / "x", some_tensors(), {"note": "ü\n"})
    tensors, metadata = read_tensors(tmp_path / "x")
    assert equal(tensors, some_tensors())
    assert list(tensors) == sorted(tensors), "the order is always the same"
    assert metadata == {"format": "pt", "note": "ü\n"}


def test_other_programs_can_read_and_write_the_files(tmp_path: Path) -> None:
    write_tensors(tmp_path / "ours", some_tensors(), {"note": "x"})
    with safetensors.safe_open(tmp_path / "ours", "pt") as file:
        assert equal({key: file.get_tensor(key) for key in file.keys()}, some_tensors())  # noqa: SIM118
        assert file.metadata()["note"] == "x"
    safetensors.torch.save_file(some_tensors(), tmp_path / "theirs")
    assert equal(read_tensors(tmp_path / "theirs")[0], some_tensors())


def test_bf16_takes_half_the_space_and_keeps_integers(tmp_path: Path) -> None:
    given = some_tensors()
    sizes = []
    for dtype in ("float32", "bf16"):
        write_tensors(tmp_path / dtype, given, dtype=dtype)
        sizes.append((tmp_path / dtype).stat().st_size)
    assert 0.49 < sizes[1] / sizes[0] < 0.51
    tensors, _ = read_tensors(tmp_path / "bf16")
    assert tensors["weight"].dtype == torch.bfloat16
    torch.testing.assert_close(tensors["weight"].float(), given["weight"], rtol=2**-8, atol=0)
    assert torch.equal(tensors["count"], given["count"])
    assert torch.equal(tensors["mask"], given["mask"])


def test_half_precision_tensors_are_widened_to_float32(tmp_path: Path) -> None:
    write_tensors(tmp_path / "x", {"half": torch.ones(2, dtype=torch.bfloat16)})
    assert read_tensors(tmp_path / "x")[0]["half"].dtype == torch.float32


def test_tied_and_oddly_laid_out_tensors_come_back(tmp_path: Path) -> None:
    table = torch.randn(4, 6, 3, 3).to(memory_format=torch.channels_last)
    given = {"one": table, "tied": table, "transposed": table.transpose(0, 1), "part": table[1:, ::2]}
    write_tensors(tmp_path / "x", given)
    assert equal(read_tensors(tmp_path / "x")[0], given)


def test_only_tensors_in_a_known_dtype_are_written(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"'float16'.*'float32' or 'bf16'"):
        write_tensors(tmp_path / "x", some_tensors(), dtype="float16")  # pyright: ignore[reportArgumentType]
    with pytest.raises(TypeError, match="'a' is a list"):
        write_tensors(tmp_path / "x", {"a": [1]})  # pyright: ignore[reportArgumentType]
    assert os.listdir(tmp_path) == []


# ------------------------------------------------------------ agents


@pytest.mark.parametrize("config", [SMALL, AgentConfig.of(size="big", memory_dim=8, bag_of_words="sum")])
def test_an_agent_comes_back_with_its_configuration(tmp_path: Path, config: AgentConfig) -> None:
    model = build_policy(config)
    save_agent(tmp_path / "agent", place_model(model, torch.device("cpu")), config)
    assert os.listdir(tmp_path / "agent") == [MODEL]
    generator_state = torch.get_rng_state()
    for path in (tmp_path / "agent", str(tmp_path / "agent"), tmp_path / "agent" / MODEL):
        again, again_config = load_policy(path)
        assert again_config == config == load_config(path)
        assert equal(again.state_dict(), model.state_dict())
    assert torch.equal(torch.get_rng_state(), generator_state), "loading does not advance torch's generator"
    _, metadata = read_tensors(tmp_path / "agent" / MODEL)
    assert metadata["babyai_version"] == babyai.__version__
    assert metadata["parameters"] == str(sum(parameter.numel() for parameter in model.parameters()))
    assert json.loads(metadata["agent"]) == asdict(config)


def test_an_agent_in_bf16_is_loaded_in_float32(tmp_path: Path, model: nn.Module) -> None:
    save_agent(tmp_path / "agent", model, SMALL, dtype="bf16")
    again, _ = load_policy(tmp_path / "agent")
    assert {parameter.dtype for parameter in again.parameters()} == {torch.float32}
    for given, expected in zip(again.parameters(), model.parameters(), strict=True):
        assert torch.equal(given, expected.bfloat16().float())


def test_a_compiled_model_is_saved_under_the_plain_names(tmp_path: Path, model: nn.Module) -> None:
    # What torch.compile returns holds the model under this name.
    compiled = nn.ModuleDict({"_orig_mod": model})
    save_agent(tmp_path / "agent", compiled, SMALL)
    assert equal(read_tensors(tmp_path / "agent" / MODEL)[0], model.state_dict())
    load_weights(compiled, tmp_path / "agent")


def test_weights_can_be_given_to_another_model(saved: Path, model: nn.Module) -> None:
    other = build_policy(SMALL)
    assert not equal(other.state_dict(), model.state_dict())
    load_weights(other, saved)
    assert equal(other.state_dict(), model.state_dict())


def test_weights_of_other_shapes_are_named_and_change_nothing(saved: Path) -> None:
    other = build_policy(AgentConfig.of("original", memory_dim=16, word_dim=8))
    before = {key: value.clone() for key, value in other.state_dict().items()}
    fact = r"lstm\.weight_ih is \(32, 128\) there and \(64, 128\) here.* and 1 more"
    with pytest.raises(CheckpointError, match=fact):
        load_weights(other, saved)
    assert equal(other.state_dict(), before)
    without_memory = build_policy(AgentConfig.of("original", memory_dim=0, word_dim=8))
    with pytest.raises(CheckpointError, match=r"lstm\.bias_hh is \(32,\) there and missing here"):
        load_weights(without_memory, saved)
    with pytest.raises(CheckpointError, match=r"that file.*weight is missing there and \(2, 3\) here"):
        load_tensors(nn.Linear(3, 2), {"bias": torch.zeros(2)}, "that file")


def test_a_configuration_that_does_not_fit_the_weights_is_refused(saved: Path) -> None:
    rewrite_metadata(saved, agent=json.dumps(asdict(SMALL) | {"memory_dim": 16}))
    with pytest.raises(CheckpointError, match=r"lstm\.weight_ih is \(32, 128\) there and \(64, 128\) here"):
        load_policy(saved)


@pytest.mark.parametrize(
    ("changes", "fact"),
    [
        ({"babyai_format": "2", "babyai_version": "9.1"}, "babyai 9.1.*format 2.*up to 1.*newer"),
        ({"babyai_format": "new"}, "not hold a babyai agent"),
        ({"agent": "{"}, "model.safetensors: Expecting"),
        ({"agent": "null"}, "architecture.*None"),
        ({"agent": '{"architecture": "bow_endpol_res"}'}, "'bow_endpol_res'.*'bow_endpool_res'"),
        ({"agent": '{"architecture": "original", "memory": 3}'}, "'memory'.*'memory_dim'"),
        ({"agent": '{"architecture": "original", "memory_dim": "8"}'}, "'memory_dim'.*int.*'8'"),
        ({"agent": '{"architecture": "original", "memory_dim": true}'}, "'memory_dim'.*int.*True"),
        ({"agent": '{"architecture": "original", "bag_of_words": "max"}'}, "'max'.*'mean' or 'sum'"),
    ],
)
def test_metadata_that_is_not_understood_is_refused(saved: Path, changes: dict[str, str], fact: str) -> None:
    rewrite_metadata(saved, **changes)
    with pytest.raises(CheckpointError, match=fact):
        load_policy(saved)


def test_a_safetensors_file_of_another_program_is_refused(saved: Path, model: nn.Module) -> None:
    safetensors.torch.save_model(model, saved / MODEL)
    with pytest.raises(CheckpointError, match=rf"{MODEL} does not hold a babyai agent"):
        load_policy(saved)


def test_settings_of_a_custom_policy_must_survive_json() -> None:
    with pytest.raises(ValueError, match="lists instead of tuples"):
        CustomConfig("a:B", {"sizes": (1, 2)})
    with pytest.raises(ValueError, match=r"'a:B'.*strings as keys"):
        CustomConfig("a:B", {"sizes": {1: 2}})
    with pytest.raises(ValueError, match=r"'a:B'.*JSON.*object"):
        CustomConfig("a:B", {"model": object()})


# ------------------------------------------------------------ damage


@pytest.mark.parametrize("size", [0, 5, 100, 5000, 50_000, -1])
def test_a_truncated_file_is_refused(saved: Path, size: int) -> None:
    file = saved / MODEL
    file.write_bytes(file.read_bytes()[:size])
    with pytest.raises(CheckpointError, match=rf"{MODEL} is damaged"):
        load_policy(saved)


def test_a_changed_byte_is_detected(tmp_path: Path) -> None:
    file = tmp_path / "x"
    metadata = {"agent": "the configuration"}
    write_tensors(file, some_tensors(), metadata)
    data = file.read_bytes()
    header = 8 + int.from_bytes(data[:8], "little")
    undetected = []
    for place in [*range(header), *range(header, len(data), len(data) // 40)]:
        file.write_bytes(data[:place] + bytes([data[place] ^ 4]) + data[place + 1 :])
        try:
            tensors, read_metadata = read_tensors(file)
        except CheckpointError:
            continue
        undetected.append(place)
        assert equal(tensors, some_tensors())
        assert read_metadata["agent"] == metadata["agent"]
    # All that can change unnoticed is the name of the checksum.
    assert len(undetected) <= len("crc32")


def test_any_other_kind_of_file_is_refused(saved: Path) -> None:
    for data in (b"", b"\x80\x04K\x01.", b"PK\x03\x04" + bytes(500), bytes(8) + b"{}", b"\x02" + bytes(7) + b"{}"):
        (saved / MODEL).write_bytes(data)
        with pytest.raises(CheckpointError, match=MODEL):
            load_policy(saved)


class _LeavesTrace:
    """Leaves a file when it is unpickled."""

    def __init__(self, trace: Path) -> None:
        self.trace = trace

    def __reduce__(self) -> Any:
        return Path.touch, (self.trace,)


def test_a_pickle_is_never_loaded(saved: Path, tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    pickle.loads(pickle.dumps(_LeavesTrace(trace)))
    assert trace.exists()
    trace.unlink()
    torch.save({"weight": _LeavesTrace(trace)}, saved / "torch")
    for data in (pickle.dumps(_LeavesTrace(trace)), (saved / "torch").read_bytes()):
        (saved / MODEL).write_bytes(data)
        with pytest.raises(CheckpointError, match=MODEL):
            load_policy(saved, trust=True)
    assert not trace.exists()


# ------------------------------------------------------------ finding


def test_a_wrong_path_gets_suggestions(saved: Path, model: nn.Module, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = saved.parent
    save_agent(folder / "run" / "checkpoints" / "3", model, SMALL)
    for wrong in (folder / "agnet", folder / "agnet/checkpoints/best"):
        with pytest.raises(FileNotFoundError, match=f"{wrong}; {folder} has agent$"):
            load_policy(wrong)
    with pytest.raises(FileNotFoundError, match=f"{folder} has agent, run$"):
        load_policy(folder)
    monkeypatch.chdir(folder)
    with pytest.raises(FileNotFoundError, match=r"19.*agent, run"):
        load_policy("19")
    (folder / "empty").mkdir()
    with pytest.raises(FileNotFoundError, match=r"empty$"):
        load_policy("empty")


def test_of_a_run_the_best_checkpoint_is_loaded_or_the_newest(tmp_path: Path, model: nn.Module) -> None:
    run = tmp_path / "run"
    checkpoints = run / "checkpoints"
    for name in ("000000002", "000000010", "000000009"):
        save_agent(checkpoints / name, model, SMALL)
    (run / "config.json").write_text('{"level": "GoToLocal"}')
    (checkpoints / "notes").mkdir()
    newest = checkpoints / "000000010" / MODEL
    assert find_checkpoint(run) == find_checkpoint(checkpoints) == newest
    # A checkpoint without a model is one that is being written or removed.
    (checkpoints / "000000011").mkdir()
    assert find_checkpoint(run) == newest
    for name in ("best-000000002", "best-000000009"):
        save_agent(checkpoints / name, model, SMALL)
    save_agent(checkpoints / ".best-000000012.tmp", model, SMALL)
    save_agent(checkpoints / "best-mine", model, SMALL)
    best = checkpoints / "best-000000009" / MODEL
    assert find_checkpoint(run) == find_checkpoint(checkpoints) == best
    assert find_checkpoint(checkpoints / "000000002") == checkpoints / "000000002" / MODEL


def test_numbers_are_compared_as_numbers(tmp_path: Path, model: nn.Module) -> None:
    for prefix in ("", "best-"):
        for number in (9, 10):
            save_agent(tmp_path / f"{prefix}{number}", model, SMALL)
        assert find_checkpoint(tmp_path) == tmp_path / f"{prefix}10" / MODEL


# ------------------------------------------------------------ writing


def filled(model: nn.Module, value: float) -> nn.Module:
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.fill_(value)
    return model


def value_in(path: Path) -> float:
    """The one value that all weights of a checkpoint have."""
    model, _ = load_policy(path)
    values = {value for parameter in model.parameters() for value in parameter.unique().tolist()}
    assert len(values) == 1
    return values.pop()


def save_killed_after(operations: int, folder: Path, model: nn.Module) -> bool:
    """Whether the process was killed while saving."""
    with pytest.MonkeyPatch.context() as patch:
        KillSwitch(operations, patch)
        try:
            save_agent(folder, model, SMALL)
        except KilledError:
            return True
    return False


def test_killed_at_any_moment_it_leaves_the_old_or_the_new_agent(tmp_path: Path, model: nn.Module) -> None:
    found = []
    for operations in range(100):
        folder = tmp_path / str(operations)
        save_agent(folder, filled(model, 1), SMALL)
        if not save_killed_after(operations, folder, filled(model, 2)):
            break
        found.append(value_in(folder))
        remove_temporaries(folder)
        save_agent(folder, filled(model, 3), SMALL)
        assert value_in(folder) == 3
        assert os.listdir(folder) == [MODEL]
    assert found == sorted(found)
    assert set(found) == {1, 2}
    assert len(found) >= 4


def test_killed_at_any_moment_the_first_save_leaves_nothing_or_all(tmp_path: Path, model: nn.Module) -> None:
    outcomes = []
    for operations in range(100):
        folder = tmp_path / str(operations)
        if not save_killed_after(operations, folder, filled(model, 2)):
            break
        try:
            outcomes.append(value_in(folder))
        except FileNotFoundError:
            outcomes.append(0)
    assert outcomes == sorted(outcomes)
    assert set(outcomes) == {0, 2}


@pytest.fixture
def small_disk() -> Iterator[None]:
    """No file can grow beyond 1 MiB."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (MIB, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


def raise_when_called(number: int) -> Any:
    def fail(*_: Any, **__: Any) -> None:
        raise OSError(number, os.strerror(number))

    return fail


@pytest.mark.parametrize(
    ("number", "advice"), [(errno.ENOSPC, "free some space"), (errno.EDQUOT, "free some space"), (errno.EIO, "again")]
)
@pytest.mark.parametrize("operation", ["fsync", "replace"])
def test_on_a_full_or_broken_disk_the_previous_agent_survives(
    operation: str, number: int, advice: str, tmp_path: Path, model: nn.Module
) -> None:
    folder = tmp_path / "agent"
    save_agent(folder, filled(model, 1), SMALL)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, operation, raise_when_called(number))
        fact = f"{folder}.*{os.strerror(number)}.*previous.*untouched.*{advice}"
        with pytest.raises(OSError, match=fact) as caught:
            save_agent(folder, filled(model, 2), SMALL)
    assert caught.value.errno == number
    assert value_in(folder) == 1
    assert os.listdir(folder) == [MODEL]


@pytest.mark.usefixtures("small_disk")
def test_a_file_that_cannot_grow_leaves_nothing_behind(tmp_path: Path, model: nn.Module) -> None:
    with pytest.raises(OSError, match=f"agent.*{os.strerror(errno.EFBIG)}.*nothing was written.*free some space"):
        save_agent(tmp_path / "agent", model, SMALL)
    assert os.listdir(tmp_path / "agent") == []


def test_a_file_in_the_way_of_the_folder_is_reported_and_kept(tmp_path: Path, model: nn.Module) -> None:
    (tmp_path / "agent").write_text("mine")
    with pytest.raises(FileExistsError, match="agent"):
        save_agent(tmp_path / "agent", model, SMALL)
    assert (tmp_path / "agent").read_text() == "mine"


def test_other_files_in_the_folder_are_kept(saved: Path, model: nn.Module) -> None:
    (saved / "README.md").write_text("mine")
    save_agent(saved, filled(model, 2), SMALL)
    assert (saved / "README.md").read_text() == "mine"
    assert value_in(saved) == 2


def test_agents_are_written_through_links_and_to_relative_paths(
    tmp_path: Path, model: nn.Module, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    save_agent(tmp_path / "link", filled(model, 1), SMALL)
    save_agent(tmp_path / "link", filled(model, 2), SMALL)
    assert (tmp_path / "link").is_symlink()
    assert value_in(tmp_path / "real") == 2
    monkeypatch.chdir(tmp_path)
    save_agent("new/agent", filled(model, 3), SMALL)
    assert value_in(tmp_path / "new/agent") == 3


def test_a_checkpoint_replaced_while_it_is_read_is_looked_for_again(
    tmp_path: Path, model: nn.Module, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run in progress writes a new best checkpoint and removes the old one."""
    checkpoints = tmp_path / "checkpoints"
    save_agent(checkpoints / "best-000000001", filled(model, 1), SMALL)
    reads = []

    def replace_then_read(path: Path) -> Any:
        reads.append(path.parent.name)
        if len(reads) == 1:
            save_agent(checkpoints / "best-000000002", filled(model, 2), SMALL)
            (checkpoints / "best-000000001" / MODEL).unlink()
        return read_tensors(path)

    monkeypatch.setattr(checkpoint, "read_tensors", replace_then_read)
    assert value_in(tmp_path) == 2
    assert reads == ["best-000000001", "best-000000002"]
    monkeypatch.setattr(checkpoint, "read_tensors", raise_when_called(errno.ENOENT))
    with pytest.raises(CheckpointError, match="replaced"):
        load_policy(tmp_path)
