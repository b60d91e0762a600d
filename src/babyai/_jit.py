"""The one `njit` that all kernels use: releases the GIL, caches safely, inlines where it pays.

Numba's on-disk cache looks at the file that defines a function, not at the functions and constants it uses. So ours
lives in a folder named by a digest of every source that a kernel can use and of every flag that changes the machine
code: an edit anywhere, another Numba, or `NUMBA_BOUNDSCHECK=1` finds an empty folder instead of stale code.
"""

import functools
import hashlib
import logging
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba
from numba import types
from numba.extending import intrinsic

PACKAGE = Path(__file__).parent
# From low to high; a kernel uses rooms below its own and no others.
KERNEL_ROOMS = ("_jit.py", "world", "levels", "engine_kernels.py", "expert", "render/blit.py", "demos/kernels.py")
# Python, not machine code: the flags Numba reads from the environment.
COMPILED = not numba.config.DISABLE_JIT  # pyright: ignore[reportAttributeAccessIssue]
CHECKED = bool(numba.config.BOUNDSCHECK)  # pyright: ignore[reportAttributeAccessIssue]

log = logging.getLogger("babyai")


def kernel_files(room: str = KERNEL_ROOMS[-1]) -> list[Path]:
    """Every source file that kernels of this room are made of: the room's own and those of the rooms below it."""
    rooms = (PACKAGE / name for name in KERNEL_ROOMS[: KERNEL_ROOMS.index(room) + 1])
    return sorted(file for path in rooms for file in ([path] if path.is_file() else path.rglob("*.py")))


def source_digest(room: str) -> str:
    """A digest of the sources of a room's kernels and of what else decides their machine code."""
    digest = hashlib.sha256(f"{numba.__version__} {sys.version} bounds={CHECKED}".encode())
    for file in kernel_files(room):
        digest.update(f"\0{file.relative_to(PACKAGE)}\0".encode() + file.read_bytes())
    return digest.hexdigest()[:16]


def room_of(file: Path) -> str:
    """The kernel room that a source file belongs to."""
    for room in KERNEL_ROOMS:
        if file == PACKAGE / room or PACKAGE / room in file.parents:
            return room
    raise RuntimeError(
        f"{file} lies outside the kernel rooms of babyai._jit: what it compiles could go stale in the cache"
    )


def cache_root() -> Path:
    """Where compiled kernels are kept: `BABYAI_CACHE_DIR`, or the user's cache folder."""
    if chosen := os.environ.get("BABYAI_CACHE_DIR"):
        return Path(chosen)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "babyai"


@functools.cache
def cache_folder(room: str) -> Path:
    """Where the machine code of a room's kernels is kept."""
    return cache_root() / source_digest(room)


def njit(function: Callable[..., Any]) -> Any:
    """Compiles a helper into whoever calls it.

    Numba would compile a helper anew for each constant it is called with; ours see only the constant's type, which
    halves the time that a cold start takes.
    """
    helper = numba.njit(nogil=True, no_cfunc_wrapper=True)(function)
    if COMPILED:
        specialise = helper.get_call_template

        def generalize(arguments: Any, keywords: dict[str, Any]) -> Any:
            keywords = {name: types.unliteral(argument) for name, argument in keywords.items()}
            return specialise([types.unliteral(argument) for argument in arguments], keywords)

        helper.get_call_template = generalize
    return helper


def entry(function: Callable[..., Any]) -> Any:
    """Compiles a kernel that Python calls, and keeps the machine code on disk."""
    before = numba.config.CACHE_DIR  # pyright: ignore[reportAttributeAccessIssue]
    numba.config.CACHE_DIR = str(cache_folder(room_of(Path(function.__code__.co_filename))))
    try:
        return numba.njit(nogil=True, cache=True)(function)
    finally:
        numba.config.CACHE_DIR = before


@functools.cache
def announce_compilation(room: str, what: str) -> None:
    """Logs one line if a room's kernels have no machine code on disk yet."""
    if COMPILED and not any(cache_folder(room).rglob("*.nbi")):
        log.warning("compiling %s for this machine, once", what)


if COMPILED:

    @intrinsic
    def multiply_high(typing_context: Any, a: Any, b: Any) -> Any:
        """The upper 64 bits of the 128-bit product of two uint64."""

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            from llvmlite import ir

            wide = ir.IntType(128)
            product = builder.mul(*(builder.zext(argument, wide) for argument in arguments))
            return builder.trunc(builder.lshr(product, ir.Constant(wide, 64)), ir.IntType(64))

        return types.uint64(types.uint64, types.uint64), generate

else:

    def multiply_high(a: int, b: int) -> int:
        return int(a) * int(b) >> 64


def _pointer(context: Any, builder: Any, array_type: Any, array: Any, offset: Any, bits: int) -> Any:
    """An LLVM pointer to `bits` bits at a byte offset of a uint8 array."""
    from llvmlite import ir
    from numba.np.arrayobj import make_array

    data = make_array(array_type)(context, builder, array).data
    return builder.bitcast(builder.gep(data, [offset]), ir.IntType(bits).as_pointer())


if COMPILED and not CHECKED:

    @intrinsic
    def load_eight(typing_context: Any, array: Any, offset: Any) -> Any:
        """Eight bytes of a uint8 array, from any offset, as one uint64."""

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            loaded = builder.load(_pointer(context, builder, signature.args[0], *arguments, 64))
            loaded.align = 1
            return loaded

        return types.uint64(array, types.intp), generate

    @intrinsic
    def store_eight(typing_context: Any, array: Any, offset: Any, value: Any) -> Any:
        """Writes the eight bytes of a uint64 into a uint8 array, at any offset."""

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            array_, offset_, value_ = arguments
            stored = builder.store(value_, _pointer(context, builder, signature.args[0], array_, offset_, 64))
            stored.align = 1
            return context.get_dummy_value()

        return types.void(array, types.intp, types.uint64), generate

    @intrinsic
    def load_byte(typing_context: Any, array: Any, offset: Any) -> Any:
        """One byte of a uint8 array as an int64, without Python's rule for negative indices."""

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            from llvmlite import ir

            loaded = builder.load(_pointer(context, builder, signature.args[0], *arguments, 8))
            return builder.zext(loaded, ir.IntType(64))

        return types.int64(array, types.intp), generate

    @intrinsic
    def store_four(typing_context: Any, array: Any, offset: Any, value: Any) -> Any:
        """Writes the four bytes of an int32 into a uint8 array, at any offset."""

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            array_, offset_, value_ = arguments
            stored = builder.store(value_, _pointer(context, builder, signature.args[0], array_, offset_, 32))
            stored.align = 1
            return context.get_dummy_value()

        return types.void(array, types.intp, types.int32), generate

else:
    # The plain versions, for NUMBA_DISABLE_JIT=1 and NUMBA_BOUNDSCHECK=1.
    import numpy as np

    @njit
    def load_eight(array: Any, offset: int) -> Any:
        value = np.uint64(0)
        for k in range(8):
            value |= np.uint64(array[offset + k]) << np.uint64(8 * k)
        return value

    @njit
    def store_eight(array: Any, offset: int, value: int) -> None:
        for k in range(8):
            array[offset + k] = (int(value) >> (8 * k)) & 255

    @njit
    def load_byte(array: Any, offset: int) -> int:
        return int(array[offset])

    @njit
    def store_four(array: Any, offset: int, value: int) -> None:
        for k in range(4):
            array[offset + k] = (int(value) >> (8 * k)) & 255
