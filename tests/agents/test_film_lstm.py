"""The paper's five architectures: their sizes, and each part against an obvious version of it."""

import re
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from babyai.agents.config import ARCHITECTURES, AgentConfig
from babyai.agents.film_lstm.language import AttentionEncoder, SentenceEncoder
from babyai.agents.film_lstm.model import FilmLSTM
from babyai.agents.film_lstm.vision import BagOfWords, conv_norm_relu
from babyai.tree import tree_leaves
from babyai.world.codes import MAX_WORDS

# The authors' counts for sizes small and big, with a word table of 100 rows.
PARAMETERS = {
    "original": (1_068_168, 20_348_552),
    "original_endpool": (1_070_088, 20_350_472),
    "original_endpool_res": (1_070_088, 20_350_472),
    "bow_endpool_res": (1_270_536, 20_550_920),
    "pixels_endpool_res": (1_238_792, 20_519_176),
}
# Batch normalization subtracts what these biases add, so they get no gradient.
BIASES_BEFORE_NORMS = {"image_encoder.conv1.bias", "image_encoder.conv2.bias", "film1.conv1.bias", "film2.conv1.bias"}
DOCS = Path(__file__).parents[2] / "docs"


def random_observation(config: AgentConfig, count: int = 3, seed: int = 0) -> dict[str, Tensor]:
    """Missions have 4, 7, 10 … words."""
    generator = torch.Generator().manual_seed(seed)
    image_shape, image_values = ((56, 56, 3), 256) if config.pixels else ((7, 7, 3), 6)
    tokens = torch.zeros(count, MAX_WORDS, dtype=torch.uint8)
    for lane in range(count):
        words = 4 + 3 * lane
        tokens[lane, :words] = torch.randint(1, 33, (words,), generator=generator)
    return {
        "image": torch.randint(0, image_values, (count, *image_shape), generator=generator).to(torch.uint8),
        "mission": tokens,
        "direction": torch.arange(count) % 4,
        "last_action": torch.arange(count) % 8 - 1,
    }


def test_documented_parameter_counts_are_right() -> None:
    pages = "\n".join(page.read_text(encoding="utf-8") for page in sorted(DOCS.glob("*.md")))
    rows = re.findall(r"^\| `(\w+)` .*\| ([\d ,]+) \| ([\d ,]+) \|$", pages, re.MULTILINE)
    documented = {name: tuple(int(re.sub("[ ,]", "", count)) for count in counts) for name, *counts in rows}
    assert documented.items() >= PARAMETERS.items()


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("size", ["small", "big"])
def test_parameter_counts_are_the_authors(architecture: str, size: str) -> None:
    model = FilmLSTM(AgentConfig.of(architecture, size))
    assert sum(parameter.numel() for parameter in model.parameters()) == PARAMETERS[architecture][size == "big"]


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("size", ["small", "big"])
def test_every_parameter_gets_a_gradient(architecture: str, size: str) -> None:
    torch.manual_seed(0)
    settings = {"memory_dim": 32} if size == "big" else {}
    model = FilmLSTM(AgentConfig.of(architecture, size, **settings))
    memory_dim = model.config.memory_dim
    state = torch.randn(3, memory_dim), torch.randn(3, memory_dim)
    logits, value, next_state = model(random_observation(model.config), state)
    assert logits.shape == (3, 7)
    assert value.shape == (3,)
    assert [tuple(part.shape) for part in next_state] == [(3, memory_dim)] * 2
    sum(output.square().sum() for output in (logits, value, *next_state)).backward()
    without = {name for name, p in model.named_parameters() if p.grad is None or not p.grad.abs().sum() > 0}
    assert without == BIASES_BEFORE_NORMS


# ------------------------------------------------------------ instructions


def test_reversed_padded_sentences_equal_packed_sequences() -> None:
    torch.manual_seed(0)
    encoder = AttentionEncoder(16, 8)
    tokens = random_observation(AgentConfig())["mission"]
    reference = nn.GRU(16, 128, batch_first=True, bidirectional=True)
    for name in ("weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0"):
        getattr(reference, name).data = getattr(encoder.forward_gru, name).data
        getattr(reference, f"{name}_reverse").data = getattr(encoder.backward_gru, name).data
    lengths = (tokens != 0).sum(1)
    packed = pack_padded_sequence(encoder.words(tokens.long()), lengths, batch_first=True, enforce_sorted=False)
    expected, _ = pad_packed_sequence(reference(packed)[0], batch_first=True)
    longest = expected.shape[1]
    is_word = (tokens != 0)[:, :longest, None]
    torch.testing.assert_close(encoder(tokens)[:, :longest] * is_word, expected * is_word)


def test_the_sentence_encoder_returns_the_state_at_the_last_word() -> None:
    torch.manual_seed(0)
    encoder = SentenceEncoder(16)
    tokens = random_observation(AgentConfig())["mission"]
    for lane, sentence in enumerate(tokens):
        words = sentence[sentence != 0].long()
        _, last = encoder.gru(encoder.words(words)[None])
        torch.testing.assert_close(encoder(tokens)[lane], last[0, 0])


def test_padding_changes_nothing() -> None:
    torch.manual_seed(0)
    tokens = random_observation(AgentConfig())["mission"]
    short = tokens[:, : int((tokens != 0).sum(1).max())]
    sentence = SentenceEncoder(16)
    torch.testing.assert_close(sentence(tokens), sentence(short))
    attention = AttentionEncoder(16, 8)
    state = torch.randn(3, 16)
    torch.testing.assert_close(
        attention.attend(attention(tokens), tokens, state), attention.attend(attention(short), short, state)
    )


def test_attention_depends_on_the_state() -> None:
    torch.manual_seed(0)
    tokens = random_observation(AgentConfig())["mission"]
    encoder = AttentionEncoder(16, 8)
    words = encoder(tokens)
    one = encoder.attend(words, tokens, torch.randn(3, 16))
    other = encoder.attend(words, tokens, torch.randn(3, 16))
    assert not torch.allclose(one, other, atol=1e-4)


# ------------------------------------------------------------ images


def test_a_tile_is_the_mean_or_the_sum_of_three_embeddings() -> None:
    torch.manual_seed(0)
    image = random_observation(AgentConfig())["image"]
    mean = BagOfWords("mean")
    total = BagOfWords("sum")
    total.load_state_dict(mean.state_dict())
    rows = [mean.table.weight[int(image[0, 2, 5, channel]) + 147 * channel] for channel in range(3)]
    torch.testing.assert_close(mean(image)[0, :, 2, 5], sum(rows) / 3)
    torch.testing.assert_close(total(image), 3 * mean(image))


@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("training", [True, False])
def test_the_bias_left_out_before_a_norm_makes_no_difference(training: bool, size: int) -> None:
    torch.manual_seed(0)
    filters = nn.Conv2d(8, 6, size, padding=1)
    norm = nn.BatchNorm2d(6).train(training)
    nn.init.normal_(filters.bias, std=3)
    plain_filters = deepcopy(filters)
    plain_norm = deepcopy(norm)
    for _ in range(3):
        x = torch.randn(5, 8, 7, 7)
        given = conv_norm_relu(filters, norm, x)
        expected = plain_norm(plain_filters(x)).relu()
        torch.testing.assert_close(given, expected, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(norm.running_mean, plain_norm.running_mean)
    torch.testing.assert_close(norm.running_var, plain_norm.running_var)
    assert torch.equal(norm.running_mean, torch.zeros(6)) != training
    given.square().sum().backward()
    expected.square().sum().backward()
    torch.testing.assert_close(filters.weight.grad, plain_filters.weight.grad, atol=1e-3, rtol=1e-4)
    torch.testing.assert_close(norm.weight.grad, plain_norm.weight.grad)


@pytest.mark.parametrize("merge", ["mean", "sum"])
def test_filters_folded_into_one_hot_tiles_equal_filters_over_embeddings(merge: str) -> None:
    torch.manual_seed(0)
    image = random_observation(AgentConfig())["image"]
    tiles = BagOfWords(merge)
    filters = nn.Conv2d(128, 8, 3, padding=1)
    expected = filters(tiles(image))
    folded = nn.functional.conv2d(tiles.one_hot(image), tiles.fold_into(filters.weight), filters.bias, padding=1)
    torch.testing.assert_close(folded, expected, atol=1e-5, rtol=1e-5)
    weights = [tiles.table.weight, filters.weight, filters.bias]
    expected_gradients = torch.autograd.grad(expected.square().sum(), weights)
    folded_gradients = torch.autograd.grad(folded.square().sum(), weights)
    torch.testing.assert_close(folded_gradients, expected_gradients, atol=1e-3, rtol=1e-4)


# ------------------------------------------------------------ what the agent sees and remembers


@pytest.mark.parametrize(
    ("settings", "key", "matters"),
    [
        ({}, "mission", True),
        ({"instruction": False}, "mission", False),
        ({"size": "big", "memory_dim": 16, "instruction": False}, "mission", False),
        ({}, "direction", False),
        ({"direction": True}, "direction", True),
        ({}, "last_action", False),
        ({"last_action": True}, "last_action", True),
    ],
)
def test_settings_decide_what_the_agent_sees(settings: dict[str, Any], key: str, matters: bool) -> None:
    torch.manual_seed(0)
    model = FilmLSTM(AgentConfig.of(**settings)).eval()
    observation = random_observation(model.config)
    changed = observation | {key: observation[key].flip(0)}
    state = model.initial_state(3)
    assert torch.equal(model(observation, state)[0], model(changed, state)[0]) != matters


@pytest.mark.parametrize("settings", [{"memory_dim": 0}, {}, {"size": "big", "memory_dim": 16}])
def test_only_an_agent_with_memory_depends_on_earlier_observations(settings: dict[str, Any]) -> None:
    torch.manual_seed(0)
    model = FilmLSTM(AgentConfig.of(**settings)).eval()
    now = random_observation(model.config, seed=0)
    logits = []
    for past in (1, 2):
        _, _, state = model(random_observation(model.config, seed=past), model.initial_state(3))
        logits.append(model(now, state)[0])
    has_memory = model.config.memory_dim > 0
    assert torch.equal(*logits) != has_memory
    assert len(tree_leaves(state)) == (2 if has_memory else 0)


@pytest.mark.parametrize(
    ("settings", "fact"),
    [
        ({"architecture": "bow_endpol_res"}, "'bow_endpol_res'.*'bow_endpool_res'"),
        ({"architecture": "x"}, "'x'.*original, original_endpool"),
        ({"size": "medium"}, "'medium'.*'small' or 'big'"),
        ({"bag_of_words": "max"}, "'max'.*'mean' or 'sum'"),
        ({"size": "big", "memory_dim": 0}, "attention.*memory_dim"),
        ({"memory_dim": -1}, "not -1 and"),
        ({"word_dim": 0}, "128 and 0"),
        ({"memry_dim": 3}, "'memry_dim'.*'memory_dim'"),
    ],
)
def test_impossible_settings_are_refused(settings: dict[str, Any], fact: str) -> None:
    with pytest.raises(ValueError, match=fact):
        AgentConfig.of(**settings)
