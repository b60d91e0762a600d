"""The compiled loops of demonstrations: packing, spelling missions, and playing recorded actions again."""

from babyai._jit import entry, njit
from babyai.engine_kernels import step_world
from babyai.world.judge import GOES_ON, SUCCESS
from babyai.world.state import ENDED, RUNNING
from babyai.world.view import VIEW_SIZE, write_view, write_view_of_size

FINE = -1


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


@njit
def _is_over(s, verdict):
    return verdict != GOES_ON or s.step_count >= s.max_steps


@entry
def skip_lanes(worlds, actions, at):
    """Plays the first `at[lane]` actions of each lane; returns a lane whose episode ends before that, or FINE."""
    for lane in range(len(worlds)):
        s = worlds[lane]
        for k in range(at[lane]):
            verdict, _ = step_world(s, int(actions[lane, k]))
            if _is_over(s, verdict):
                return lane
    return FINE


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
def play_lanes(
    worlds, actions, lengths, at, filled, size, views, numbers, out_images, out_headings, out_actions, out_first,
    out_numbers, first, last
):  # fmt: skip
    """Plays each lane of [first, last) until its demonstration ends or its column of the chunk is full.

    Returns a lane whose demonstration does not end with its episode, or FINE. Each lane has a row of `actions`, of
    which it has played `at` of `lengths`; a row of `views`, what its agent sees now; the number of its episode within
    the chunk; and a column of each of the chunk's (T, N) arrays, of which the first `filled` steps have been filled.
    """
    steps, width = out_images.shape[0], out_images.shape[2]
    for lane in range(first, last):
        s, view = worlds[lane], views[lane]
        t, k, length = filled[lane], at[lane], lengths[lane]
        while t < steps and k < length:
            action = int(actions[lane, k])
            image = out_images[t, lane]
            for b in range(width):
                image[b] = view[b]
            out_headings[t, lane] = s.agent_dir
            out_actions[t, lane] = action
            out_first[t, lane] = k == 0
            out_numbers[t, lane] = numbers[lane]
            verdict, changed = step_world(s, action)
            t += 1
            k += 1
            if _is_over(s, verdict) != (k == length):
                return lane
            if changed and k < length:
                show(s, size, view)
        filled[lane] = t
        at[lane] = k
    return FINE


@entry
def replay_batch(worlds, packed, offsets, lengths, rewards, first, last):
    """Plays demonstration i in world i, for [first, last), until its actions or the episode are at an end.

    Fills in how many actions were played and what the last one earned; a world that goes on keeps status RUNNING.
    """
    for i in range(first, last):
        s = worlds[i]
        lengths[i] = 0
        rewards[i] = 0.0
        for k in range(offsets[i], offsets[i + 1]):
            if s.status != RUNNING:
                break
            verdict, _ = step_world(s, int(packed[k]))
            lengths[i] += 1
            if verdict == SUCCESS:
                rewards[i] = 1.0 - 0.9 * (s.step_count / s.max_steps)
            if _is_over(s, verdict):
                s.status = ENDED
