"""Agents as files: what is written comes back, and neither damage nor a crash gives anything but words or the whole."""

import errno
import json
import os
import resource
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from babyai.agents import checkpoint, folders, tensors
from babyai.agents.checkpoint import (
    CheckpointError,
    atomic_folder,
    find_checkpoint,
    load_config,
    load_model,
    load_tensors,
    load_weights,
    save_model,
    save_tensors,
)
from babyai.agents.config import AgentConfig, CustomConfig
from babyai.agents.custom import make_model
from babyai.agents.device import place_model

SMALL = AgentConfig.of("original", memory_dim=8, word_dim=8)
MIB = 2**20


def some_tensors(seed: int = 0) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return {
        "weight": torch.randn(300, 70, generator=generator),
        "bias": torch.randn(5, generator=generator),
        "batches": torch.tensor(2**40 + seed),
        "mask": torch.tensor([True, False]),
        "none": torch.zeros(0, 3),
        "fine": torch.randn(3, generator=generator, dtype=torch.float64),
    }


def equal(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return one.keys() == other.keys() and all(
        value.dtype == other[key].dtype and torch.equal(value, other[key]) for key, value in one.items()
    )


@pytest.fixture
def model() -> nn.Module:
    torch.manual_seed(1)
    return make_model("original", memory_dim=8, word_dim=8)


@pytest.fixture
def saved(tmp_path: Path, model: nn.Module) -> Path:
    save_model(tmp_path / "agent", model, SMALL)
    return tmp_path / "agent"


def edit(folder: Path, **changes: Any) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


# ---------------------------------------------------------------- tensors


def test_tensors_come_back(tmp_path: Path) -> None:
    with atomic_folder(tmp_path / "x") as folder:
        save_tensors(folder, some_tensors())
        save_tensors(folder, some_tensors(1), name="training")
    assert equal(load_tensors(tmp_path / "x"), some_tensors())
    assert list(load_tensors(tmp_path / "x")) == sorted(some_tensors())
    assert equal(load_tensors(tmp_path / "x", "training"), some_tensors(1))


def test_bf16_takes_half_the_space_and_keeps_integers(tmp_path: Path) -> None:
    given = some_tensors()
    for dtype in ("float32", "bf16"):
        with atomic_folder(tmp_path / dtype) as folder:
            save_tensors(folder, given, dtype=dtype)
    sizes = [(tmp_path / dtype / "model.safetensors").stat().st_size for dtype in ("float32", "bf16")]
    assert 0.49 < sizes[1] / sizes[0] < 0.51
    raw, wide = load_tensors(tmp_path / "bf16"), load_tensors(tmp_path / "bf16", dtype="float32")
    assert raw["weight"].dtype == torch.bfloat16 and wide["weight"].dtype == torch.float32
    torch.testing.assert_close(wide["weight"], given["weight"], rtol=2**-8, atol=0)
    assert not torch.equal(wide["weight"], given["weight"])
    assert torch.equal(raw["batches"], given["batches"]) and torch.equal(raw["mask"], given["mask"])


@pytest.mark.parametrize("limit", [2**16, 70_000, 10**5])
def test_no_part_is_larger_than_told(tmp_path: Path, limit: int) -> None:
    given = {f"a rather long name {k}": torch.randn(k % 7, 50) for k in range(300)} | some_tensors()
    given["large"] = torch.randn(9, 100, 5, 20)
    with atomic_folder(tmp_path / "x") as folder:
        save_tensors(folder, given, max_part_bytes=limit)
    files = sorted((tmp_path / "x").glob("*.safetensors"))
    assert files[0].name == f"model-00001-of-{len(files):05}.safetensors"
    sizes = [file.stat().st_size for file in files]
    assert max(sizes) <= limit and sum(sizes) > (len(sizes) - 1) * limit / 2
    index = json.loads((tmp_path / "x/model.safetensors.index.json").read_text())
    assert set(index["weight_map"].values()) == {file.name for file in files}
    assert index["metadata"]["total_size"] == sum(tensor.nbytes for tensor in given.values())
    assert equal(load_tensors(tmp_path / "x"), given)


def test_what_fits_into_one_part_is_one_file(tmp_path: Path) -> None:
    with atomic_folder(tmp_path / "x") as folder:
        save_tensors(folder, some_tensors(), max_part_bytes=10 * MIB)
    assert os.listdir(tmp_path / "x") == ["model.safetensors"]


def test_shared_and_oddly_laid_out_tensors_are_kept(tmp_path: Path) -> None:
    table = torch.randn(4, 6, 3, 3).to(memory_format=torch.channels_last)
    given = {"one": table, "same": table, "turned": table.transpose(0, 1)}
    with atomic_folder(tmp_path / "x") as folder:
        save_tensors(folder, given)
    assert equal(load_tensors(tmp_path / "x"), given)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        ({"dtype": "float16"}, "unknown dtype 'float16'"),
        ({"max_part_bytes": 1000}, "parts of 1000 bytes are too small"),
        ({"tensors": {"a": torch.zeros(2, 10**5)}, "max_part_bytes": 10**5}, "one row of 'a' has 400000 bytes"),
    ],
)
def test_refuses_to_write_what_cannot_be(tmp_path: Path, call: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words), atomic_folder(tmp_path / "x") as folder:
        save_tensors(folder, **({"tensors": some_tensors()} | call))
    assert os.listdir(tmp_path) == []


def test_writes_only_tensors_and_never_over_others(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="'a' is no tensor but list"), atomic_folder(tmp_path / "x") as folder:
        save_tensors(folder, {"a": [1]})  # pyright: ignore[reportArgumentType]
    save_tensors(tmp_path, some_tensors())
    with pytest.raises(FileExistsError, match="already"):
        save_tensors(tmp_path, some_tensors())


# ---------------------------------------------------------------- models


@pytest.mark.parametrize("config", [SMALL, AgentConfig.of(size="big", memory_dim=8, bag_of_words="sum")])
def test_a_model_comes_back_with_its_settings(tmp_path: Path, config: AgentConfig) -> None:
    model = checkpoint.build_model(config)
    save_model(tmp_path / "agent", place_model(model, torch.device("cpu")), config)
    state = torch.get_rng_state()
    again, read = load_model(tmp_path / "agent")
    assert torch.equal(torch.get_rng_state(), state)
    assert read == config == load_config(tmp_path / "agent")
    assert equal(again.state_dict(), model.state_dict())
    says = json.loads((tmp_path / "agent/config.json").read_text())
    assert says["parameters"] == sum(p.numel() for p in model.parameters()) and says["dtype"] == "float32"
    assert says["babyai_version"] and says["format_version"] == 1


def test_a_compiled_model_is_kept_under_its_own_names(tmp_path: Path, model: nn.Module) -> None:
    # What torch.compile gives holds the model under this name.
    compiled = nn.ModuleDict({"_orig_mod": model})
    save_model(tmp_path / "agent", compiled, SMALL)
    assert equal(load_tensors(tmp_path / "agent"), model.state_dict())
    load_weights(compiled, tmp_path / "agent")


def test_weights_can_be_given_to_another_model(saved: Path, model: nn.Module) -> None:
    other = make_model("original", memory_dim=8, word_dim=8)
    assert not equal(other.state_dict(), model.state_dict())
    load_weights(other, saved)
    assert equal(other.state_dict(), model.state_dict())


def test_says_which_tensors_are_of_other_sizes(saved: Path) -> None:
    other = make_model("original", memory_dim=16, word_dim=8)
    before = {key: value.clone() for key, value in other.state_dict().items()}
    with pytest.raises(
        CheckpointError, match=r"memory.weight_ih is \(32, 128\) there and \(64, 128\) here; .*; and 1 more$"
    ):
        load_weights(other, saved)
    assert equal(other.state_dict(), before)
    without = make_model("original", memory_dim=0, word_dim=8)
    with pytest.raises(CheckpointError, match=r"memory\.bias_hh is \(32,\) there and missing here"):
        load_weights(without, saved)


def test_refuses_a_config_that_does_not_fit_its_weights(saved: Path) -> None:
    says = json.loads((saved / "config.json").read_text())
    edit(saved, agent=says["agent"] | {"memory_dim": 16})
    with pytest.raises(CheckpointError, match=r"is of other sizes than this model: memory\.weight_ih"):
        load_model(saved)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"format_version": 2, "babyai_version": "9.1"}, "written by babyai 9.1 in format 2; .* install a newer"),
        ({"format": "other"}, "does not describe an agent"),
        ({"agent": None}, "must say its architecture"),
        ({"agent": {"architecture": "bow_endpol_res"}}, "unknown architecture 'bow_endpol_res'; did you mean"),
        ({"agent": {"architecture": "original", "memory": 3}}, "no setting 'memory'; did you mean 'memory_dim'"),
        ({"agent": {"architecture": "original", "memory_dim": "8"}}, "'memory_dim' must be of type int, not '8'"),
        ({"agent": {"architecture": "original", "bag_of_words": "max"}}, "unknown bag_of_words 'max'"),
    ],
)
def test_refuses_configs_it_does_not_understand(saved: Path, changes: dict[str, Any], words: str) -> None:
    edit(saved, **changes)
    with pytest.raises(CheckpointError, match=words):
        load_model(saved)


def test_settings_of_a_custom_model_must_be_plain_json() -> None:
    with pytest.raises(ValueError, match="use lists instead of tuples"):
        CustomConfig("a:B", {"sizes": (1, 2)})
    with pytest.raises(ValueError, match="cannot be kept as JSON"):
        CustomConfig("a:B", {"model": object()})


# ---------------------------------------------------------------- damage


@pytest.mark.parametrize("keep", [0, 5, 100, 5000, 50_000, -1])
def test_a_file_cut_short_is_refused(saved: Path, keep: int) -> None:
    file = saved / "model.safetensors"
    file.write_bytes(file.read_bytes()[:keep])
    with pytest.raises(CheckpointError, match=r"model\.safetensors is damaged or cut short"):
        load_model(saved)


def test_a_changed_byte_is_found_out(tmp_path: Path) -> None:
    folder = tmp_path / "x"
    with atomic_folder(folder) as new:
        save_tensors(new, some_tensors())
    file = folder / "model.safetensors"
    data = file.read_bytes()
    header = 8 + int.from_bytes(data[:8], "little")
    refused = 0
    places = [*range(0, header, 7), *range(header, len(data), len(data) // 40)]
    for place in places:
        file.write_bytes(data[:place] + bytes([data[place] ^ 4]) + data[place + 1 :])
        try:
            # Only the few bytes that say nothing about the tensors may change without notice.
            assert equal(load_tensors(folder), some_tensors()) and place < header
        except CheckpointError:
            refused += 1
    assert refused > 0.9 * len(places)


def test_every_other_kind_of_file_is_refused(saved: Path) -> None:
    for data in (b"", b"\x80\x04K\x01.", b"PK\x03\x04" + bytes(500), bytes(8) + b"{}", b"\x02" + bytes(7) + b"{}"):
        (saved / "model.safetensors").write_bytes(data)
        with pytest.raises(CheckpointError):
            load_model(saved)


def test_a_missing_file_is_named(tmp_path: Path, model: nn.Module) -> None:
    folder = tmp_path / "agent"
    save_model(folder, model, SMALL, max_part_bytes=MIB)
    parts = sorted(folder.glob("model-*"))
    (parts[1]).rename(tmp_path / "aside")
    with pytest.raises(CheckpointError, match=f"its part {parts[1].name} is missing"):
        load_model(folder)
    shutil.copy(parts[0], parts[1])
    with pytest.raises(CheckpointError, match=rf"damaged: '.*' is not in {parts[1].name}"):
        load_model(folder)
    (tmp_path / "aside").rename(parts[1])
    load_model(folder)
    with pytest.raises(CheckpointError, match=r"has no file training\.safetensors"):
        load_tensors(folder, "training")
    (folder / "config.json").unlink()
    with pytest.raises(CheckpointError, match=r"has no file config\.json"):
        load_model(folder)
    (folder / "config.json").write_text("{")
    with pytest.raises(CheckpointError, match=r"config\.json is damaged"):
        load_model(folder)


@pytest.mark.parametrize("file", ["../secret.safetensors", "/dev/zero"])
def test_an_index_cannot_lead_elsewhere(tmp_path: Path, saved: Path, file: str) -> None:
    shutil.copy(saved / "model.safetensors", tmp_path / "secret.safetensors")
    (saved / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"a": file}}))
    with pytest.raises(CheckpointError, match="is missing"):
        load_model(saved)


# ---------------------------------------------------------------- finding


def test_says_which_checkpoints_are_near(saved: Path, model: nn.Module, monkeypatch: pytest.MonkeyPatch) -> None:
    save_model(saved.parent / "run" / "checkpoints" / "3", model, SMALL)
    for wrong in (saved.parent / "agnet", saved.parent / "agnet/checkpoints/best"):
        with pytest.raises(FileNotFoundError, match=f"no checkpoint at {wrong}; in {saved.parent} there are agent$"):
            load_model(wrong)
    with pytest.raises(FileNotFoundError, match=r"there are agent, run$"):
        load_model(saved.parent)
    monkeypatch.chdir(saved.parent)
    with pytest.raises(FileNotFoundError, match="no checkpoint at 19"):
        load_model("19")
    (saved.parent / "empty").mkdir()
    with pytest.raises(FileNotFoundError, match=r"empty$"):
        load_model("empty")


def test_of_a_run_it_takes_the_best_or_the_newest(tmp_path: Path, model: nn.Module) -> None:
    run = tmp_path / "run"
    for name in ("2", "10", "9"):
        save_model(run / "checkpoints" / name, model, SMALL)
    (run / "config.json").write_text('{"level": "GoToLocal"}')
    assert find_checkpoint(run) == find_checkpoint(run / "checkpoints") == run / "checkpoints/10"
    save_model(run / "checkpoints/best", model, SMALL)
    assert find_checkpoint(run) == run / "checkpoints/best"
    (run / "checkpoints/best").rename(run / "checkpoints/.best.old")
    assert find_checkpoint(run) == run / "checkpoints/.best.old"
    assert find_checkpoint(run / "checkpoints/2") == run / "checkpoints/2"


# ---------------------------------------------------------------- writing


def filled(model: nn.Module, value: float) -> nn.Module:
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.fill_(value)
    return model


def value_in(folder: Path) -> float:
    """The one value that all weights of a checkpoint have."""
    model, _ = load_model(folder)
    values = {value for parameter in model.parameters() for value in parameter.unique().tolist()}
    assert len(values) == 1
    return values.pop()


class Killed(BaseException):
    """The process is no more."""


class Mortal:
    """Lets a number of operations on the disk through; from then on nothing happens any more."""

    def __init__(self, lives: int, monkeypatch: pytest.MonkeyPatch) -> None:
        self.lives = lives
        for module, name in ((os, "rename"), (os, "fsync"), (Path, "mkdir")):
            monkeypatch.setattr(module, name, self.wrap(getattr(module, name)))
        monkeypatch.setattr(shutil, "rmtree", self.remove)

    def wrap(self, operation: Any) -> Any:
        def mortal(*arguments: Any, **options: Any) -> Any:
            self.live()
            return operation(*arguments, **options)

        return mortal

    def remove(self, folder: Path, ignore_errors: bool) -> None:
        """One file after the other, so that death may come in between."""
        if not folder.exists():
            return
        for path in sorted(folder.iterdir()):
            self.live()
            path.unlink()
        self.live()
        folder.rmdir()

    def live(self) -> None:
        if self.lives <= 0:
            raise Killed
        self.lives -= 1


@pytest.mark.parametrize("parts", [None, MIB])
def test_a_crash_leaves_the_old_or_the_new_checkpoint(tmp_path: Path, model: nn.Module, parts: int | None) -> None:
    found = []
    for lives in range(100):
        folder = tmp_path / str(lives) / "agent"
        save_model(folder, filled(model, 1), SMALL, max_part_bytes=parts)
        with pytest.MonkeyPatch.context() as patch:
            mortal = Mortal(lives, patch)
            try:
                save_model(folder, filled(model, 2), SMALL, max_part_bytes=parts)
            except Killed:
                mortal.lives = 0
            else:
                break
        found.append(value_in(folder))
        # What comes after finds its way, and clears up.
        save_model(folder, filled(model, 3), SMALL)
        assert value_in(folder) == 3 and os.listdir(folder.parent) == ["agent"]
        shutil.rmtree(folder.parent)
    assert found == sorted(found) and set(found) == {1, 2} and len(found) > 8


def test_a_crash_before_the_first_checkpoint_leaves_none_or_it(tmp_path: Path, model: nn.Module) -> None:
    for lives in range(100):
        folder = tmp_path / str(lives) / "agent"
        with pytest.MonkeyPatch.context() as patch:
            Mortal(lives, patch)
            try:
                save_model(folder, filled(model, 2), SMALL)
            except Killed:
                pass
            else:
                break
        try:
            assert value_in(folder) == 2
        except FileNotFoundError:
            assert not folder.exists()
    assert lives > 4


@pytest.fixture
def small_disk() -> Iterator[None]:
    """No file can grow beyond 1 MiB."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (MIB, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_without_space_the_old_checkpoint_survives(tmp_path: Path, model: nn.Module) -> None:
    folder = tmp_path / "agent"
    save_model(folder, filled(model, 1), SMALL)

    def is_full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", is_full)
        with pytest.raises(OSError, match="could not be written: No space left on device; the one before is untouched"):
            save_model(folder, filled(model, 2), SMALL)
    assert value_in(folder) == 1 and os.listdir(tmp_path) == ["agent"]


def test_says_so_when_a_file_cannot_grow(tmp_path: Path, model: nn.Module, small_disk: None) -> None:
    with pytest.raises(OSError, match="could not be written: File too large; nothing is left of it: make room"):
        save_model(tmp_path / "agent", model, SMALL)
    assert os.listdir(tmp_path) == []


def test_an_error_while_writing_leaves_everything_as_it_was(saved: Path, model: nn.Module) -> None:
    with pytest.raises(KeyError, match="half"), atomic_folder(saved) as folder:
        raise KeyError((folder / "config.json").write_text("half"), "half")
    assert equal(load_tensors(saved), model.state_dict()) and os.listdir(saved.parent) == ["agent"]


def test_a_move_that_fails_is_undone(tmp_path: Path, model: nn.Module) -> None:
    folder, rename = tmp_path / "agent", os.rename
    save_model(folder, filled(model, 1), SMALL)

    def refuse_the_new(source: Path, target: Path) -> None:
        if source.name == ".agent.new":
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        rename(source, target)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "rename", refuse_the_new)
        with pytest.raises(OSError, match="Input/output error; the one before is untouched: try again"):
            save_model(folder, filled(model, 2), SMALL)
    assert os.listdir(tmp_path) == ["agent"] and value_in(folder) == 1


def test_nothing_but_a_checkpoint_is_replaced(tmp_path: Path, saved: Path, model: nn.Module) -> None:
    (saved / "README.md").write_text("mine")
    run, file, data = tmp_path / "run", tmp_path / "file", tmp_path / "data"
    save_model(run / "checkpoints/1", model, SMALL)
    file.write_text("mine")
    data.mkdir()
    (data / "numbers.json").write_text("[1]")
    for folder, named in ((saved, "README.md"), (run, "checkpoints"), (file, "file"), (data, "numbers.json")):
        with pytest.raises(FileExistsError, match=rf"{folder} holds more than a checkpoint \({named}\)"):
            save_model(folder, model, SMALL)
        assert folder.exists()
    assert file.read_text() == "mine" and (data / "numbers.json").read_text() == "[1]"
    (tmp_path / "empty").mkdir()
    save_model(tmp_path / "empty", model, SMALL)


def test_writes_through_links_and_into_the_current_folder(
    tmp_path: Path, model: nn.Module, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    save_model(tmp_path / "link", filled(model, 1), SMALL)
    save_model(tmp_path / "link", filled(model, 2), SMALL)
    assert (tmp_path / "link").is_symlink() and value_in(tmp_path / "real") == 2
    monkeypatch.chdir(tmp_path)
    save_model("new/agent", filled(model, 3), SMALL)
    assert value_in(tmp_path / "new/agent") == 3


def test_a_checkpoint_replaced_while_it_is_read_is_read_again(
    tmp_path: Path, model: nn.Module, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "agent"
    save_model(folder, filled(model, 1), SMALL, max_part_bytes=MIB)
    unpack, seen = tensors._unpack, []

    def unpack_and_replace(path: Path) -> dict[str, Tensor]:
        seen.append(path.name)
        if len(seen) == 2:
            save_model(folder, filled(model, 2), SMALL, max_part_bytes=MIB)
        return unpack(path)

    monkeypatch.setattr(tensors, "_unpack", unpack_and_replace)
    assert value_in(folder) == 2 and len(seen) > 4
    monkeypatch.setattr(folders, "_identity", lambda place: object())
    with pytest.raises(CheckpointError, match="again and again"):
        load_model(folder)
