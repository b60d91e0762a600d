"""The Baby Language: missions round-trip through text, tokens and records, and errors are helpful."""

import gzip
import json
import subprocess
import sys
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from babyai.world.codes import (
    AFTER,
    ANY_COLOR,
    ANY_NOUN,
    ANYWHERE,
    BALL,
    BEFORE,
    BEHIND,
    BOX,
    DOOR,
    GO_TO,
    GREY,
    IN_FRONT,
    KEY,
    MAX_WORDS,
    NO_CLAUSE,
    NOUNS,
    OPEN,
    PICK_UP,
    PUT_NEXT,
    RED,
    SINGLE,
    VOCABULARY,
)
from babyai.world.language import (
    Clause,
    Descriptor,
    Mission,
    MissionError,
    complete_mission,
    detokenize,
    parse_mission,
    random_mission,
    tokenize,
)
from babyai.world.state import make_worlds

GOLDEN = Path(__file__).parents[1] / "golden" / "episodes_minigrid320.jsonl.gz"

THE_RED_KEY = Descriptor(KEY, RED, ANYWHERE, True)
A_DOOR = Descriptor(DOOR, ANY_COLOR, ANYWHERE, False)
GO_TO_KEY = Clause(GO_TO, THE_RED_KEY)


def descriptors_of(nouns):
    return st.builds(
        Descriptor, st.sampled_from(nouns), st.integers(0, ANY_COLOR), st.integers(ANYWHERE, BEHIND), st.booleans()
    )


anything = descriptors_of(list(NOUNS))
movable = descriptors_of([ANY_NOUN, KEY, BALL, BOX])
clauses = st.one_of(
    st.builds(Clause, st.just(GO_TO), anything),
    st.builds(Clause, st.just(PICK_UP), movable),
    st.builds(Clause, st.just(OPEN), descriptors_of([DOOR])),
    st.builds(Clause, st.just(PUT_NEXT), movable, anything),
)
sides = st.lists(clauses, min_size=1, max_size=2).map(tuple)
missions = st.one_of(
    st.builds(Mission, sides),
    st.builds(Mission, sides, st.sampled_from([BEFORE, AFTER]), sides),
)


@settings(max_examples=600, deadline=None)
@given(missions)
def test_text_tokens_and_record_round_trip(mission):
    text = str(mission)
    assert parse_mission(text) == mission
    assert detokenize(tokenize(text)) == text
    worlds = make_worlds(1)
    mission.write(worlds[0])
    assert Mission.read(worlds[0]) == mission


def test_random_missions_round_trip_and_cover_the_grammar():
    rng = np.random.default_rng(0)
    worlds = make_worlds(1)
    drawn = [random_mission(rng) for _ in range(2000)]
    for mission in drawn:
        mission.write(worlds[0])
        text = str(mission)
        assert parse_mission(text) == Mission.read(worlds[0]) == mission
        assert detokenize(tokenize(text)) == text
    shapes = {(mission.order, len(mission.first), len(mission.second)) for mission in drawn}
    assert len(shapes) == 2 + 4 + 4
    assert {token for mission in drawn for token in tokenize(str(mission)).tolist()} == set(range(len(VOCABULARY)))


def test_random_mission_is_deterministic_given_the_generator():
    assert random_mission(np.random.default_rng(7)) == random_mission(np.random.default_rng(7))


def test_minigrid_missions_round_trip():
    with gzip.open(GOLDEN, "rt") as lines:
        texts = {json.loads(line)["mission"] for line in lines}
    assert len(texts) > 300
    for text in texts:
        assert str(parse_mission(text)) == text
        assert detokenize(tokenize(text)) == text


def is_valid_clause(verb, thing, target):
    try:
        Clause(verb, thing, target)
    except ValueError:
        return False
    return True


def test_number_of_descriptors_and_clauses_matches_the_paper():
    # The nouns of the paper; "object" is used only by PickupDist.
    nouns = [noun for noun in NOUNS if noun != ANY_NOUN]
    described = list(map(Descriptor, *zip(*product(nouns, range(7), range(5), (False, True)), strict=True)))
    assert len({str(descriptor) for descriptor in described}) == 280
    verbs = GO_TO, PICK_UP, OPEN, PUT_NEXT
    assert sum(is_valid_clause(*parts) for parts in product(verbs, described, [None, *described])) == 59360


def test_the_longest_mission_has_max_words_tokens():
    long = Clause(PUT_NEXT, Descriptor(BALL, GREY, IN_FRONT, True), Descriptor(DOOR, GREY, IN_FRONT, True))
    assert np.count_nonzero(tokenize(str(Mission((long, long), AFTER, (long, long))))) == 72 == MAX_WORDS
    assert np.count_nonzero(tokenize(str(Mission((long, long), BEFORE, (long, long))))) == 71


def test_sentence_of_each_form():
    ball = Descriptor(BALL, ANY_COLOR, BEHIND, False)
    go = GO_TO_KEY
    pick = Clause(PICK_UP, ball)
    open_ = Clause(OPEN, A_DOOR)
    put = Clause(PUT_NEXT, ball, A_DOOR)
    assert str(Mission((go,))) == "go to the red key"
    assert str(Mission((pick, open_))) == "pick up a ball behind you and open a door"
    assert str(Mission((go,), BEFORE, (open_,))) == "go to the red key, then open a door"
    assert str(Mission((put,), AFTER, (go, open_))) == (
        "put a ball behind you next to a door after you go to the red key and open a door"
    )
    assert str(Descriptor(ANY_NOUN, GREY, ANYWHERE, False)) == "a grey object"


@pytest.mark.parametrize(
    "text",
    [
        "Go To The Red Key, Then Open A Door",
        "go to the red key then open a door",
        "  go\tto the  red key  ,then\nopen a door ",
    ],
)
def test_case_space_and_comma_do_not_matter(text):
    assert parse_mission(text) == Mission((GO_TO_KEY,), BEFORE, (Clause(OPEN, A_DOOR),))


def test_fields_of_a_written_mission():
    worlds = make_worlds(2)
    worlds.view(np.uint8)[:] = 255
    Mission((GO_TO_KEY,), AFTER, (Clause(PUT_NEXT, THE_RED_KEY, A_DOOR), GO_TO_KEY)).write(worlds[0])
    world = worlds[0]
    assert (world.order, world.strict, world.definite) == (AFTER, 0, 0b01010001)
    assert world.verbs.tolist() == [GO_TO, NO_CLAUSE, PUT_NEXT, GO_TO]
    assert world.nouns.tolist() == [KEY, 0, 0, 0, KEY, DOOR, KEY, 0]
    assert world.colors.tolist() == [RED, 0, 0, 0, RED, ANY_COLOR, RED, 0]
    assert world.places.tolist() == [0] * 8
    assert (world.seed, worlds[1].order) == (-1, 255), "other fields and worlds must not change"


def test_a_blank_world_has_no_mission():
    with pytest.raises(ValueError, match="no mission"):
        Mission.read(make_worlds(1)[0])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Descriptor(3, RED, ANYWHERE, True), "noun code 3"),
        (lambda: Descriptor(KEY, 7, ANYWHERE, True), "color code 7"),
        (lambda: Descriptor(KEY, RED, -1, True), "place code -1"),
        (lambda: Clause(NO_CLAUSE, THE_RED_KEY), "verb code 0"),
        (lambda: Clause(PUT_NEXT, THE_RED_KEY), "'put' requires a target"),
        (lambda: Clause(GO_TO, THE_RED_KEY, A_DOOR), "'go to' takes no target"),
        (lambda: Clause(OPEN, Descriptor(ANY_NOUN, RED, ANYWHERE, True)), "only a door can be opened, not 'object'"),
        (lambda: Clause(PICK_UP, A_DOOR), "a door cannot be picked up"),
        (lambda: Clause(PUT_NEXT, A_DOOR, THE_RED_KEY), "a door cannot be moved"),
        (lambda: Mission(()), r"first side .* one or two clauses, got \(\)"),
        (lambda: Mission((GO_TO_KEY,) * 3), "first side .* one or two clauses"),
        (lambda: Mission((GO_TO_KEY,), BEFORE), r"second side .* one or two clauses, got \(\)"),
        (lambda: Mission((GO_TO_KEY,), SINGLE, (GO_TO_KEY,)), "second side .* empty"),
        (lambda: Mission((GO_TO_KEY,), 3, (GO_TO_KEY,)), "order code 3"),
    ],
)
def test_invalid_missions_raise(make, message):
    with pytest.raises(ValueError, match=message):
        make()


NOUN_NEXT = "'object', 'door', 'key', 'ball' or 'box'"
COLOR_NEXT = f"'red', 'green', 'blue', 'purple', 'yellow', 'grey', {NOUN_NEXT}"
PLACE_NEXT = "'in front of you', 'behind you', 'on your left', 'on your right'"
NEXT_NEXT = f"{PLACE_NEXT} or 'next to'"
VERB_NEXT = "'go to', 'pick up', 'open' or 'put'"
END_NEXT = f"{PLACE_NEXT}, 'and', 'then', 'after you' or the end"
THREE_CLAUSES = "'and' joins at most two clauses"
THREE_SIDES = "a mission has at most one 'then' or 'after you'"

# The sentence, the position of the marker, and the message.
INVALID = [
    ("fetch the ball", "^^^^^", f"expected {VERB_NEXT}, found 'fetch'"),
    ("goto the ball", "^^^^", f"expected {VERB_NEXT}, found 'goto'; did you mean 'go to'?"),
    ("pick the ball", "     ^^^", "expected 'up', found 'the'"),
    ("go to ball", "      ^^^^", "expected 'the' or 'a', found 'ball'"),
    ("go to an object", "      ^^", "expected 'the' or 'a', found 'an'; did you mean 'a'?"),
    ("Go to\tthe Bal", "          ^^^", f"expected {COLOR_NEXT}, found 'Bal'; did you mean 'ball'?"),
    ("open the gray door", "         ^^^^", f"expected {COLOR_NEXT}, found 'gray'; did you mean 'grey'?"),
    ("go to the red", "              ^", f"expected {NOUN_NEXT}, but the sentence ends"),
    ("go to the red blue ball", "              ^^^^", f"expected {NOUN_NEXT}, found 'blue'"),
    ("go to a key.", "        ^^^^", f"expected {COLOR_NEXT}, found 'key.'; did you mean 'key'?"),
    ("pick up the red door", "                ^^^^", "a door cannot be picked up"),
    ("open the ball", "         ^^^^", "only a door can be opened, not 'ball'"),
    ("put a door next to a key", "      ^^^^", "a door cannot be moved"),
    ("put a key", "          ^", f"expected {NEXT_NEXT}, but the sentence ends"),
    ("put a key nex to a box", "          ^^^", f"expected {NEXT_NEXT}, found 'nex'; did you mean 'next'?"),
    ("go to a key on your top", "                    ^^^", "expected 'left' or 'right', found 'top'"),
    ("go to a key please", "            ^^^^^^", f"expected {END_NEXT}, found 'please'"),
    ("go to a key, open a door", "           ^", f"expected {END_NEXT}, found ','"),
    ("go to a key after open a door", "                  ^^^^", "expected 'you', found 'open'"),
    ("go to a key, then", "                  ^", f"expected {VERB_NEXT}, but the sentence ends"),
    ("go to a key and go to a key and go to a key", "                            ^^^", THREE_CLAUSES),
    ("go to a key, then go to a key, then go to a key", "                               ^^^^", THREE_SIDES),
    ("go to a key, then go to a key after you go to a key", "                              ^^^^^", THREE_SIDES),
]


@pytest.mark.parametrize(("text", "mark", "message"), INVALID)
def test_errors_point_at_the_offending_word(text, mark, message):
    with pytest.raises(MissionError) as caught:
        parse_mission(text)
    assert str(caught.value).split("\n") == [message, "    " + text.replace("\t", " "), "    " + mark]


@pytest.mark.parametrize("text", ["", " \n "])
def test_an_empty_sentence_raises(text):
    with pytest.raises(MissionError, match="empty; expected 'go to'"):
        parse_mission(text)


@settings(max_examples=500, deadline=None)
@given(st.lists(st.sampled_from([*VOCABULARY[1:], ",", "bal", "the red", "ball", "go to"]), max_size=12), st.text())
def test_arbitrary_text_parses_or_raises_mission_error(words, noise):
    for text in (" ".join(words), noise):
        try:
            mission = parse_mission(text)
        except MissionError:
            continue
        assert tokenize(text).tolist() == tokenize(str(mission)).tolist()


@settings(max_examples=500, deadline=None)
@given(missions, st.data())
def test_a_sentence_with_a_missing_or_repeated_word_parses_literally_or_raises(mission, data):
    words = str(mission).split()
    i = data.draw(st.integers(0, len(words) - 1))
    for text in (" ".join(words[:i] + words[i + 1 :]), " ".join([*words[: i + 1], *words[i:]])):
        try:
            assert str(parse_mission(text)).replace(",", "") == text.replace(",", "")
        except MissionError:
            continue


def test_unknown_words_raise_with_a_suggestion():
    with pytest.raises(MissionError) as caught:
        tokenize("go to teh ball")
    assert str(caught.value).split("\n") == [
        "unknown word 'teh' (word 3); did you mean 'the'?",
        "    go to teh ball",
        "          ^^^",
    ]
    with pytest.raises(MissionError, match="at most 72 words"):
        tokenize("go " * 73)


def test_tokens_are_indices_into_the_vocabulary():
    tokens = tokenize("Open a door, then GO")
    assert (tokens.dtype, tokens.shape) == (np.uint8, (MAX_WORDS,))
    assert [VOCABULARY[token] for token in tokens[:5]] == ["open", "a", "door", "then", "go"]
    assert not tokens[5:].any()
    assert detokenize(np.zeros(5, dtype=np.int64)) == ""
    for wrong in (len(VOCABULARY), -1):
        with pytest.raises(ValueError, match=f"token id {wrong}; expected 0 to 32"):
            detokenize(np.array([1, wrong]))


def test_the_language_module_does_not_import_numba():
    code = "import sys, babyai.world.language; sys.exit('numba' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


# ---------------------------------------------------------------- completion


@pytest.mark.parametrize(
    ("text", "phrases"),
    [
        ("", ["go to", "pick up", "open", "put"]),
        ("go ", ["to"]),
        ("GO TO THE R", ["red"]),
        ("open the red ", ["door"]),
        ("pick up a grey ", ["object", "key", "ball", "box"]),
        ("put a key on your left ", ["next to"]),
        ("go to a door o", ["on your left", "on your right"]),
        ("go to a door on ", ["your left", "your right"]),
        ("go to a door behind you ", ["and", "then", "after you"]),
        ("go to a door, t", ["then"]),
        ("go to a door and go to a key behind you ", ["then", "after you"]),
        ("go to a door then go to a key behind you and open a door behind you ", []),
        ("eat ", []),
    ],
)
def test_completions(text: str, phrases: list[str]) -> None:
    assert complete_mission(text) == phrases


@given(st.integers(0, 2**32 - 1))
def test_every_mission_can_be_typed_by_completion(seed: int) -> None:
    words = str(random_mission(np.random.default_rng(seed))).replace(",", "").split()
    for count in range(len(words)):
        before = " ".join(words[:count]) + " " * (count > 0)
        assert words[count] in [phrase.split()[0] for phrase in complete_mission(before)]
        assert words[count] in [phrase.split()[0] for phrase in complete_mission(before + words[count][:1])]
