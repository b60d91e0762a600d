"""Compiled loops over demonstrations: packing, spelling missions, replaying actions."""

from babyai._jit import entry, njit
from babyai.engine_kernels import step_world
from babyai.world.state import ENDED, RUNNING
from babyai.world.view import VIEW_SIZE, write_view, write_view_of_size

OK = -1


@entry
def pack_rows(padded, rows, offsets, packed):
    """Copies the beginning of each named row of `padded` to its place, offsets[k] to offsets[k + 1], in `packed`."""
    for k in range(len(rows)):
        row, first = rows[k], offsets[k]
        for j in range(offsets[k + 1] - first):
            packed[first + j] = padded[row, j]


@entry
def spell_batch(missions, rows, letters, starts, offsets, text):
    """Writes the words of each named mission, one mission after the other, into `text`; fills `offsets`.

    Word w, with what stands between it and the word before, is letters[starts[w]:starts[w + 1]].
    """
    at = 0
    offsets[0] = 0
    for k in range(len(rows)):
        tokens = missions[rows[k]]
        for j in range(len(tokens)):
            word = int(tokens[j])
            if word == 0:
                break
            # The first word has nothing before it.
            for letter in range(starts[word] + (j == 0), starts[word + 1]):
                text[at] = letters[letter]
                at += 1
        offsets[k + 1] = at


@entry
def load_lanes(lanes, starts, lengths, packed, actions):
    """Copies demonstration k, lengths[k] actions of `packed` from starts[k] on, into row lanes[k] of `actions`."""
    for k in range(len(lanes)):
        lane, first = lanes[k], starts[k]
        for j in range(lengths[k]):
            actions[lane, j] = packed[first + j]


@entry
def skip_lanes(worlds, actions, at):
    """Plays the first `at[lane]` actions of each lane; returns a lane whose episode ends before that, or OK."""
    for lane in range(len(worlds)):
        s = worlds[lane]
        for k in range(at[lane]):
            _, terminated, truncated, _ = step_world(s, int(actions[lane, k]))
            if terminated or truncated:
                return lane
    return OK


@entry
def show_lanes(worlds, chosen, size, views):
    """Draws what the agent of each chosen lane sees into that lane's row of `views`."""
    for lane in range(len(worlds)):
        if chosen[lane]:
            show(worlds[lane], size, views[lane])


@njit
def show(s, size, view):
    """Writes what the agent sees into `view`, (size * size * 3,) uint8."""
    if size == VIEW_SIZE:
        write_view(s, view, 0)
    else:
        write_view_of_size(s, size, view, 0)


@entry
def play_lanes(worlds, actions, lengths, at, filled, size, views, rows, out, first, last):
    """Plays each lane of [first, last) until its demonstration ends or its column of the batch is full.

    Returns a lane whose demonstration does not end with its episode, or OK. Each lane has a row of `actions`, of which
    it has played `at` of `lengths`; a row of `views`, its current observation; the row of its mission; and a column of
    each array of `out`, of which the first `filled` steps have been filled. These are the fields of a
    `babyai.batch.Batch`, in the order below; images are (T, N, bytes).
    """
    (
        images, directions, last_actions, mission_index, starts, taken, rewards, terminated, truncated, levels, seeds
    ) = out  # fmt: skip
    steps = images.shape[0]
    width = images.shape[2]
    for lane in range(first, last):
        s = worlds[lane]
        view = views[lane]
        t = filled[lane]
        k = at[lane]
        length = lengths[lane]
        while t < steps and k < length:
            action = int(actions[lane, k])
            image = images[t, lane]
            for b in range(width):
                image[b] = view[b]
            directions[t, lane] = s.agent_dir
            last_actions[t, lane] = actions[lane, k - 1] if k > 0 else -1
            mission_index[t, lane] = rows[lane]
            starts[t, lane] = k == 0
            taken[t, lane] = action
            levels[t, lane] = s.level
            seeds[t, lane] = s.seed
            rewards[t, lane], terminated[t, lane], truncated[t, lane], changed = step_world(s, action)
            ended = terminated[t, lane] or truncated[t, lane]
            t += 1
            k += 1
            if ended != (k == length):
                return lane
            if changed and k < length:
                show(s, size, view)
        filled[lane] = t
        at[lane] = k
    return OK


@entry
def replay_batch(worlds, packed, offsets, lengths, rewards, first, last):
    """Plays demonstration i in world i, for [first, last), until its actions or the episode are at an end.

    Fills in how many actions were played and the last one's reward; an episode that has not ended keeps status RUNNING.
    """
    for i in range(first, last):
        s = worlds[i]
        lengths[i] = 0
        rewards[i] = 0.0
        for k in range(offsets[i], offsets[i + 1]):
            if s.status != RUNNING:
                break
            rewards[i], terminated, truncated, _ = step_world(s, int(packed[k]))
            lengths[i] += 1
            if terminated or truncated:
                s.status = ENDED
