"""The five architectures: their sizes, and each part against an obvious version of it."""

from copy import deepcopy

import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from babyai.agents.config import ARCHITECTURES, AgentConfig
from babyai.agents.language import AttentiveReader, SentenceReader
from babyai.agents.model import Model
from babyai.agents.vision import BagOfWords, conv_norm_relu
from babyai.world.codes import MAX_WORDS

# The authors' counts, with a word table of 100 rows.
PARAMETERS = {
    "original": (1_068_168, 20_348_552),
    "original_endpool": (1_070_088, 20_350_472),
    "original_endpool_res": (1_070_088, 20_350_472),
    "bow_endpool_res": (1_270_536, 20_550_920),
    "pixels_endpool_res": (1_238_792, 20_519_176),
}


def observations(config: AgentConfig, count: int = 3) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    shape, most = ((count, 56, 56, 3), 256) if config.pixels else ((count, 7, 7, 3), 6)
    tokens = torch.zeros(count, MAX_WORDS, dtype=torch.uint8)
    for k in range(count):
        tokens[k, : 4 + 3 * k] = torch.randint(1, 33, (4 + 3 * k,), generator=generator)
    return {
        "image": torch.randint(0, most, shape, generator=generator).to(torch.uint8),
        "mission": tokens,
        "direction": torch.arange(count) % 4,
        "last_action": torch.arange(count) % 8 - 1,
    }


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("size", ["small", "big"])
def test_has_as_many_parameters_as_the_authors_model(architecture: str, size: str) -> None:
    model = Model(AgentConfig.of(architecture, size))
    assert sum(p.numel() for p in model.parameters()) == PARAMETERS[architecture][size == "big"]


# A norm takes away what these add, so they have nothing to learn.
BEFORE_NORMS = {f"{part}.bias" for part in ("see.first", "see.second", "first_film.first", "second_film.first")}


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("size", ["small", "big"])
def test_every_parameter_learns(architecture: str, size: str) -> None:
    torch.manual_seed(0)
    settings = {"memory_dim": 32} if size == "big" else {}
    model = Model(AgentConfig.of(architecture, size, **settings))
    seen = observations(model.config)
    memory = torch.randn(3, 2 * model.config.memory_dim)
    logits, value, after = model(seen, memory)
    assert logits.shape == (3, 7) and value.shape == (3,) and after.shape == memory.shape
    (logits.square().sum() + value.square().sum() + after.square().sum()).backward()
    still = {name for name, p in model.named_parameters() if p.grad is None or not p.grad.abs().sum() > 0}
    assert still == BEFORE_NORMS


def test_reads_padded_sentences_as_packed_ones() -> None:
    torch.manual_seed(0)
    reader, tokens = AttentiveReader(16, 8), observations(AgentConfig())["mission"]
    reference = nn.GRU(16, 128, batch_first=True, bidirectional=True)
    for name in ("weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0"):
        getattr(reference, name).data = getattr(reader.onward, name).data
        getattr(reference, f"{name}_reverse").data = getattr(reader.backward_, name).data
    lengths = (tokens != 0).sum(1)
    packed = pack_padded_sequence(reader.words(tokens.long()), lengths, batch_first=True, enforce_sorted=False)
    expected, _ = pad_packed_sequence(reference(packed)[0], batch_first=True)
    real = (tokens != 0)[:, : expected.shape[1], None]
    torch.testing.assert_close(reader(tokens)[:, : expected.shape[1]] * real, expected * real)


def test_padding_changes_nothing() -> None:
    torch.manual_seed(0)
    tokens = observations(AgentConfig())["mission"]
    longest = int((tokens != 0).sum(1).max())
    plain, attentive, memory = SentenceReader(16), AttentiveReader(16, 8), torch.randn(3, 16)
    torch.testing.assert_close(plain(tokens), plain(tokens[:, :longest]))
    attended = [attentive.attend(attentive(t), t, memory) for t in (tokens, tokens[:, :longest])]
    torch.testing.assert_close(*attended)


def test_a_tile_is_the_mean_of_its_three_words_or_their_sum() -> None:
    torch.manual_seed(0)
    image = observations(AgentConfig())["image"]
    mean, total = BagOfWords("mean"), BagOfWords("sum")
    total.load_state_dict(mean.state_dict())
    rows = [mean.table.weight[int(image[0, 2, 5, k]) + 147 * k] for k in range(3)]
    torch.testing.assert_close(mean(image)[0, :, 2, 5], sum(rows) / 3)
    torch.testing.assert_close(total(image), 3 * mean(image))


@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("training", [True, False])
def test_what_is_left_out_before_a_norm_makes_no_difference(training: bool, size: int) -> None:
    torch.manual_seed(0)
    filters, norm = nn.Conv2d(8, 6, size, padding=1), nn.BatchNorm2d(6).train(training)
    nn.init.normal_(filters.bias, std=3)
    plain_filters, plain_norm = deepcopy(filters), deepcopy(norm)
    for _ in range(3):
        x = torch.randn(5, 8, 7, 7)
        given, expected = conv_norm_relu(filters, norm, x), plain_norm(plain_filters(x)).relu()
        torch.testing.assert_close(given, expected, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(norm.running_mean, plain_norm.running_mean)
    torch.testing.assert_close(norm.running_var, plain_norm.running_var)
    assert torch.equal(norm.running_mean, torch.zeros(6)) != training
    given.square().sum().backward()
    expected.square().sum().backward()
    torch.testing.assert_close(filters.weight.grad, plain_filters.weight.grad, atol=1e-3, rtol=1e-4)
    torch.testing.assert_close(norm.weight.grad, plain_norm.weight.grad)


@pytest.mark.parametrize("merge", ["mean", "sum"])
def test_filters_over_tiles_are_those_over_their_words(merge: str) -> None:
    torch.manual_seed(0)
    image, words, filters = observations(AgentConfig())["image"], BagOfWords(merge), nn.Conv2d(128, 8, 3, padding=1)
    expected = filters(words(image))
    given = nn.functional.conv2d(words.choose(image), words.fold(filters.weight), filters.bias, padding=1)
    torch.testing.assert_close(given, expected, atol=1e-5, rtol=1e-5)
    weights = [words.table.weight, filters.weight, filters.bias]
    for one, other in zip(
        torch.autograd.grad(expected.square().sum(), weights),
        torch.autograd.grad(given.square().sum(), weights),
        strict=True,
    ):
        torch.testing.assert_close(other, one, atol=1e-3, rtol=1e-4)


@pytest.mark.parametrize(
    ("settings", "key", "matters"),
    [
        ({}, "mission", True),
        ({"instruction": False}, "mission", False),
        ({}, "direction", False),
        ({"direction": True}, "direction", True),
        ({}, "last_action", False),
        ({"last_action": True}, "last_action", True),
    ],
)
def test_controls_decide_what_the_agent_is_told(settings: dict, key: str, matters: bool) -> None:
    torch.manual_seed(0)
    model = Model(AgentConfig.of(**settings)).eval()
    seen = observations(model.config)
    changed = seen | {key: seen[key].flip(0)}
    memory = model.initial_memory(3)
    assert torch.equal(model(seen, memory)[0], model(changed, memory)[0]) != matters


def test_without_memory_the_past_does_not_matter() -> None:
    torch.manual_seed(0)
    model = Model(AgentConfig.of(memory_dim=0)).eval()
    logits, _, memory = model(observations(model.config), model.initial_memory(3))
    assert logits.shape == (3, 7) and memory.shape == (3, 0)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"architecture": "bow_endpol_res"}, "did you mean 'bow_endpool_res'"),
        ({"size": "medium"}, "'small' or 'big'"),
        ({"size": "big", "memory_dim": 0}, "cannot have it"),
        ({"memory_dim": -1}, "cannot be negative"),
    ],
)
def test_refuses_agents_that_cannot_be(settings: dict, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        AgentConfig.of(**settings)
