"""NumPy's PCG64 generator, stored in each world; it draws exactly what `numpy.random.Generator` would.

A world seeded with `s` therefore generates the same episode as Minigrid seeded with `s` and ends with the same
generator state. The compiled code works on 64-bit halves; with the compiler off, Python integers are used.
"""

import numpy as np

from babyai._jit import COMPILED, multiply_high, njit
from babyai.world.codes import ALPHABETICAL_COLORS

MULTIPLIER = 0x2360ED051FC65DA44385DF649FCCF645
MASK32 = (1 << 32) - 1
MASK64 = (1 << 64) - 1
MASK128 = (1 << 128) - 1
MULTIPLIER_HIGH = np.uint64(MULTIPLIER >> 64)
MULTIPLIER_LOW = np.uint64(MULTIPLIER & MASK64)
COLOR_ORDER = np.array(ALPHABETICAL_COLORS, dtype=np.int64)

if COMPILED:

    @njit
    def _advance(s):
        low = s.rng_low * MULTIPLIER_LOW
        high = multiply_high(s.rng_low, MULTIPLIER_LOW) + s.rng_high * MULTIPLIER_LOW + s.rng_low * MULTIPLIER_HIGH
        s.rng_low = low + s.rng_inc_low
        s.rng_high = high + s.rng_inc_high + np.uint64(s.rng_low < low)

    @njit
    def _next64(s):
        _advance(s)
        mixed = s.rng_high ^ s.rng_low
        rotation = s.rng_high >> np.uint64(58)
        return (mixed >> rotation) | (mixed << ((np.uint64(64) - rotation) & np.uint64(63)))

    @njit
    def _next32(s):
        if s.rng_has_spare:
            s.rng_has_spare = 0
            return np.int64(s.rng_spare)
        word = _next64(s)
        s.rng_has_spare = 1
        s.rng_spare = np.uint32(word >> np.uint64(32))
        return np.int64(word & np.uint64(0xFFFFFFFF))

    @njit
    def uniform(s):
        """Draws a float in [0, 1); does not use the buffered 32-bit half."""
        return np.float64(_next64(s) >> np.uint64(11)) * 2.0**-53

    @njit
    def _start(s, state_high, state_low, sequence_high, sequence_low):
        s.rng_inc_high = (sequence_high << np.uint64(1)) | (sequence_low >> np.uint64(63))
        s.rng_inc_low = (sequence_low << np.uint64(1)) | np.uint64(1)
        s.rng_low = state_low + s.rng_inc_low
        s.rng_high = state_high + s.rng_inc_high + np.uint64(s.rng_low < state_low)
        _advance(s)

    @njit
    def _join(high, low):
        return (np.uint64(high) << np.uint64(32)) | np.uint64(low)

else:

    def _advance(s):
        state = int(s.rng_high) << 64 | int(s.rng_low)
        state = state * MULTIPLIER + (int(s.rng_inc_high) << 64 | int(s.rng_inc_low)) & MASK128
        s.rng_high = state >> 64
        s.rng_low = state & MASK64

    def _next64(s):
        _advance(s)
        mixed = int(s.rng_high) ^ int(s.rng_low)
        rotation = int(s.rng_high) >> 58
        return (mixed >> rotation | mixed << (64 - rotation)) & MASK64

    def _next32(s):
        if s.rng_has_spare:
            s.rng_has_spare = 0
            return int(s.rng_spare)
        word = _next64(s)
        s.rng_has_spare = 1
        s.rng_spare = word >> 32
        return word & MASK32

    def uniform(s):
        """Draws a float in [0, 1); does not use the buffered 32-bit half."""
        return (_next64(s) >> 11) * 2.0**-53

    def _start(s, state_high, state_low, sequence_high, sequence_low):
        increment = ((sequence_high << 64 | sequence_low) << 1 | 1) & MASK128
        state = (state_high << 64 | state_low) + increment & MASK128
        s.rng_inc_high = increment >> 64
        s.rng_inc_low = increment & MASK64
        s.rng_high = state >> 64
        s.rng_low = state & MASK64
        _advance(s)

    def _join(high, low):
        return int(high) << 32 | int(low)


@njit
def draw(s, low, high):
    """Draws an integer in [low, high) by Lemire's method; a range of one value consumes no random bits."""
    span = high - low
    if span == 1:
        return low
    product = _next32(s) * span
    if (product & MASK32) < span:
        threshold = ((1 << 32) - span) % span
        while (product & MASK32) < threshold:
            product = _next32(s) * span
    return low + (product >> 32)


@njit
def flip(s):
    """Draws a boolean; True where the integer drawn is 0, as in Minigrid."""
    return draw(s, 0, 2) == 0


@njit
def draw_color(s):
    """Draws a color code."""
    return COLOR_ORDER[draw(s, 0, 6)]


@njit
def _hash(value, constant, multiplier):
    """Applies one hash round of NumPy's SeedSequence; returns the value and the next constant."""
    next_constant = (constant * multiplier) & MASK32
    value = ((value ^ constant) * next_constant) & MASK32
    return value ^ (value >> 16), next_constant


@njit
def _mix(x, y):
    value = (0xCA01F9DD * x - 0x4973F715 * y) & MASK32
    return value ^ (value >> 16)


@njit
def seed_generator(s, seed):
    """Sets the world's generator to the initial state of `np.random.default_rng(seed)`, for a seed in [0, 2**63)."""
    seed = int(seed)
    constant = 0x43B0D7E5
    a, constant = _hash(seed & MASK32, constant, 0x931E8875)
    b, constant = _hash(seed >> 32, constant, 0x931E8875)
    c, constant = _hash(0, constant, 0x931E8875)
    d, constant = _hash(0, constant, 0x931E8875)
    for source in range(4):
        if source != 0:
            value, constant = _hash((a, b, c, d)[source], constant, 0x931E8875)
            a = _mix(a, value)
        if source != 1:
            value, constant = _hash((a, b, c, d)[source], constant, 0x931E8875)
            b = _mix(b, value)
        if source != 2:
            value, constant = _hash((a, b, c, d)[source], constant, 0x931E8875)
            c = _mix(c, value)
        if source != 3:
            value, constant = _hash((a, b, c, d)[source], constant, 0x931E8875)
            d = _mix(d, value)
    constant = 0x8B51F9DD
    w0, constant = _hash(a, constant, 0x58F38DED)
    w1, constant = _hash(b, constant, 0x58F38DED)
    w2, constant = _hash(c, constant, 0x58F38DED)
    w3, constant = _hash(d, constant, 0x58F38DED)
    w4, constant = _hash(a, constant, 0x58F38DED)
    w5, constant = _hash(b, constant, 0x58F38DED)
    w6, constant = _hash(c, constant, 0x58F38DED)
    w7, constant = _hash(d, constant, 0x58F38DED)
    _start(s, _join(w1, w0), _join(w3, w2), _join(w5, w4), _join(w7, w6))
    s.rng_has_spare = 0
    s.rng_spare = 0
    s.seed = seed
