"""torch.compile: marked functions are compiled inside `compiling()` and nowhere else, and compute the same."""

import threading
from collections.abc import Callable
from copy import deepcopy
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._dynamo.backends.registry import lookup_backend
from torch._dynamo.utils import counters

from babyai.agents.compilation import compilable, compile_function, compiling, is_compiling_enabled
from babyai.agents.config import AgentConfig
from babyai.agents.film_lstm.model import FilmLSTM
from babyai.agents.map.memory import update_memory
from babyai.agents.map.model import MapPolicy
from babyai.agents.map.padding import Capacities, Sizes
from babyai.agents.map.tokens import Frames
from babyai.agents.policy import reset_state
from babyai.tree import tree_leaves
from tests.agents.map.test_memory import Follower
from tests.agents.map.test_model import play_frames
from tests.agents.random_batches import gradients, random_batch, random_state

# Warnings that torch raises about itself while it traces.
pytestmark = [
    pytest.mark.filterwarnings("ignore:.*script_method:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor:UserWarning"),
]
ALWAYS_COMPILED = {"encode_image", "heads"}
SMALL_COMPILED = {"apply_film", "_step_forward", "_step_backward"}
BIG_COMPILED = {"functional_call", "_lstm_update"}
MAP_COMPILED = {"count_tokens", "_look", "_read_patches", "_rank_events"}
MAP_COMPILED |= {"project", "query", "finish", "finish_and_project"}


class Compiler:
    """Traces and compiles as torch.compile does, but runs the graphs without generating C++ code.

    Attributes:
        functions: The names of the functions that were to be compiled.
        graphs: The graphs that were compiled.
    """

    def __init__(self, torch_compile: Callable[..., Any]) -> None:
        self.functions: list[str] = []
        self.graphs: list[Any] = []
        self._torch_compile = torch_compile

    def compile(self, function: Callable[..., Any], **settings: Any) -> Callable[..., Any]:
        self.functions.append(function.__name__)
        return self._torch_compile(function, backend=self._backend, **settings)

    def _backend(self, graph: Any, inputs: list[Any]) -> Any:
        self.graphs.append(graph)
        return lookup_backend("aot_eager")(graph, inputs)


@pytest.fixture
def compiler(monkeypatch: pytest.MonkeyPatch) -> Any:
    compiler = Compiler(torch.compile)
    monkeypatch.setattr(torch, "compile", compiler.compile)
    compile_function.cache_clear()
    counters.clear()
    yield compiler
    compile_function.cache_clear()
    torch.compiler.reset()


@compilable
def double(x: Tensor) -> Tensor:
    return 2 * x


@compilable
def quadruple(x: Tensor) -> Tensor:
    return double(double(x))


def test_functions_are_compiled_inside_the_context_only(compiler: Compiler) -> None:
    x = torch.arange(3.0)
    assert torch.equal(double(x), 2 * x)
    assert compiler.functions == []
    with compiling():
        for _ in range(2):
            assert torch.equal(double(x), 2 * x)
        with compiling(False):
            quadruple(x)
    assert compiler.functions == ["double"]
    assert len(compiler.graphs) == 1
    with compiling():
        double(torch.arange(4.0))
        # What a compiled function calls is compiled along with it.
        assert torch.equal(quadruple(x), 4 * x)
    assert compiler.functions == ["double", "quadruple"]
    assert len(compiler.graphs) == 3, "one graph for each shape and function"


def test_the_context_is_restored_and_belongs_to_one_thread() -> None:
    inside_other_thread = []
    other = threading.Thread(target=lambda: inside_other_thread.append(is_compiling_enabled()))
    with compiling():
        other.start()
        other.join()
        with compiling(False):
            assert not is_compiling_enabled()
        assert is_compiling_enabled()
    assert inside_other_thread == [False]
    assert not is_compiling_enabled()
    with pytest.raises(KeyError), compiling():
        raise KeyError
    assert not is_compiling_enabled()


@pytest.mark.parametrize("training", [pytest.param(False, marks=pytest.mark.long), True], ids=["eval", "train"])
@pytest.mark.parametrize(
    ("size", "functions"),
    [
        ("small", ALWAYS_COMPILED | SMALL_COMPILED),
        pytest.param("big", ALWAYS_COMPILED | BIG_COMPILED, marks=pytest.mark.long),
    ],
)
def test_a_compiled_agent_computes_the_same(size: str, functions: set[str], training: bool, compiler: Compiler) -> None:
    torch.manual_seed(0)
    model = FilmLSTM(AgentConfig.of(size=size, memory_dim=24, word_dim=16)).double().train(training)
    plain = deepcopy(model)
    batch = random_batch()
    state = random_state(model, torch.float64)
    expected = plain.unroll(batch, state)
    expected_gradients = gradients(plain, expected.logits, expected.values)
    assert compiler.functions == []
    with compiling():
        given = model.unroll(batch, state)
        given_gradients = gradients(model, given.logits, given.values)
    assert set(compiler.functions) == functions
    assert len(compiler.graphs) >= len(functions), "every function was traced"
    assert not counters["graph_break"], dict(counters["graph_break"])
    assert_close = partial(torch.testing.assert_close, atol=1e-6, rtol=1e-5)
    assert_close(tuple(given), tuple(expected))
    assert given_gradients.keys() == expected_gradients.keys()
    assert_close(given_gradients, expected_gradients)
    assert_close(dict(model.named_buffers()), dict(plain.named_buffers()))


@pytest.mark.long
def test_the_compiled_map_agent_computes_the_same(compiler: Compiler) -> None:
    """And one compilation serves any number of frames."""
    torch.manual_seed(0)
    policy = MapPolicy(32, 3, 2)
    frames = play_frames(steps=30)
    results = []
    for enabled in (False, True):
        for count in (8, 5):
            some = Frames(*(part[:count] for part in frames))
            with compiling(enabled):
                used = Sizes(*policy.count(some).tolist())
                tokens = policy.tokenize(some, Capacities().fit(used))
                logits, values, *_ = policy.decide_tokens(tokens)
                results.append((used, tokens, logits.detach(), gradients(policy, logits, values)))
    assert set(compiler.functions) == MAP_COMPILED and not counters["graph_break"]
    # Two of `finish_and_project`: the last layer projects to other things.
    assert len(compiler.graphs) == len(MAP_COMPILED) + 1
    torch.testing.assert_close(results[2:], results[:2])


@pytest.mark.long
def test_the_compiled_memory_is_the_memory(compiler: Compiler) -> None:
    follower = Follower(["BossLevel", "PutNextLocal"], 8, 5)
    compiled = follower.memory
    for _ in range(20):
        starts = torch.from_numpy(follower.starts.copy())
        follower.observe()
        inputs = (torch.from_numpy(follower.engine.images), torch.from_numpy(follower.actions), follower.tables)
        with compiling():
            compiled = update_memory(reset_state(compiled, follower.initial, starts), *inputs)
        assert all(map(torch.equal, tree_leaves(compiled), tree_leaves(follower.memory)))
        follower.step()
    assert len(compiler.graphs) == 1 and not counters["graph_break"]
