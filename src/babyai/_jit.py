"""The `njit` and `entry` decorators that all kernels use: they release the GIL and cache machine code safely.

Numba's on-disk cache only checks the file that defines a function, not the functions and constants it uses. This
package therefore keeps its cache in a folder named after a digest of every source file a kernel can use and of every
flag that changes the machine code. After an edit, with another Numba version, or with `NUMBA_BOUNDSCHECK=1`, that
folder is a different one, so stale code is never loaded. `babyai._kernel_cache` reads and writes the files in it.
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

from babyai._kernel_cache import SUFFIX, KernelCache

PACKAGE = Path(__file__).parent
# Modules and packages that contain kernels, lowest first. A kernel only uses its own layer and the layers before it.
KERNEL_LAYERS = (
    "atomic_io.py",
    "_kernel_cache.py",
    "_jit.py",
    "world",
    "levels",
    "engine_kernels.py",
    "expert",
    "render/blit.py",
    "demos/kernels.py",
)
# Numba reads these flags from NUMBA_DISABLE_JIT and NUMBA_BOUNDSCHECK.
COMPILED = not numba.config.DISABLE_JIT  # pyright: ignore[reportAttributeAccessIssue]
CHECKED = bool(numba.config.BOUNDSCHECK)  # pyright: ignore[reportAttributeAccessIssue]

log = logging.getLogger("babyai")


def kernel_files(layer: str = KERNEL_LAYERS[-1]) -> list[Path]:
    """Every source file that can affect the kernels of a layer: its own files and those of the layers before it."""
    layers = (PACKAGE / name for name in KERNEL_LAYERS[: KERNEL_LAYERS.index(layer) + 1])
    return sorted(file for path in layers for file in ([path] if path.is_file() else path.rglob("*.py")))


def source_digest(layer: str) -> str:
    """Digest of a layer's sources, the Numba and Python versions, and the bounds-checking flag."""
    digest = hashlib.sha256(f"{numba.__version__} {sys.version} bounds={CHECKED}".encode())
    for file in kernel_files(layer):
        digest.update(f"\0{file.relative_to(PACKAGE)}\0".encode() + file.read_bytes())
    return digest.hexdigest()[:16]


def layer_of(file: Path) -> str:
    """The kernel layer that a source file belongs to."""
    for layer in KERNEL_LAYERS:
        if file == PACKAGE / layer or PACKAGE / layer in file.parents:
            return layer
    raise RuntimeError(
        f"{file} is not in babyai._jit.KERNEL_LAYERS, so its cached machine code could become stale; add it there"
    )


def cache_root() -> Path | None:
    """The cache folder for compiled kernels: `BABYAI_CACHE_DIR`, or `babyai` in the user's cache folder, if any."""
    if chosen := os.environ.get("BABYAI_CACHE_DIR"):
        return Path(chosen).absolute()
    try:
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache").absolute() / "babyai"
    except RuntimeError:
        # There is no HOME, and the user is not in the password file.
        return None


@functools.cache
def cache_folder(layer: str) -> Path | None:
    """The cache folder for the machine code of a layer's kernels."""
    root = cache_root()
    return None if root is None else root / source_digest(layer)


def njit(function: Callable[..., Any]) -> Any:
    """Compiles a function that other compiled functions call.

    Numba would specialize the function for every literal constant passed to it. This decorator shows Numba only the
    constant's type, which halves the time of a cold start.
    """
    helper = numba.njit(nogil=True, no_cfunc_wrapper=True)(function)
    if COMPILED:
        specialize = helper.get_call_template

        def generalize(arguments: Any, keywords: dict[str, Any]) -> Any:
            keywords = {name: types.unliteral(argument) for name, argument in keywords.items()}
            return specialize([types.unliteral(argument) for argument in arguments], keywords)

        helper.get_call_template = generalize
    return helper


def entry(function: Callable[..., Any]) -> Any:
    """Compiles a kernel that Python calls, and caches its machine code on disk."""
    folder = cache_folder(layer_of(Path(function.__code__.co_filename)))
    kernel = numba.njit(nogil=True)(function)
    if COMPILED:
        kernel._cache = KernelCache(folder, f"{function.__module__}.{function.__qualname__}")
    return kernel


@functools.cache
def announce_compilation(layer: str, what: str) -> None:
    """Logs one line if a layer's kernels are not in the disk cache yet."""
    folder = cache_folder(layer)
    if COMPILED and (folder is None or not any(folder.glob(f"*{SUFFIX}"))):
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
    """LLVM pointer to a `bits`-bit integer at a byte offset of a uint8 array."""
    from llvmlite import ir
    from numba.np.arrayobj import make_array

    data = make_array(array_type)(context, builder, array).data
    return builder.bitcast(builder.gep(data, [offset]), ir.IntType(bits).as_pointer())


if COMPILED and not CHECKED:

    @intrinsic
    def load_eight(typing_context: Any, array: Any, offset: Any) -> Any:
        """Loads eight bytes of a uint8 array as one uint64, from any offset (unaligned)."""

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            loaded = builder.load(_pointer(context, builder, signature.args[0], *arguments, 64))
            loaded.align = 1
            return loaded

        return types.uint64(array, types.intp), generate

    @intrinsic
    def store_eight(typing_context: Any, array: Any, offset: Any, value: Any) -> Any:
        """Stores a uint64 as eight bytes of a uint8 array, at any offset (unaligned)."""

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            array_, offset_, value_ = arguments
            stored = builder.store(value_, _pointer(context, builder, signature.args[0], array_, offset_, 64))
            stored.align = 1
            return context.get_dummy_value()

        return types.void(array, types.intp, types.uint64), generate

    @intrinsic
    def load_byte(typing_context: Any, array: Any, offset: Any) -> Any:
        """Loads one byte of a uint8 array as an int64, without the check for negative indices."""

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            from llvmlite import ir

            loaded = builder.load(_pointer(context, builder, signature.args[0], *arguments, 8))
            return builder.zext(loaded, ir.IntType(64))

        return types.int64(array, types.intp), generate

    @intrinsic
    def store_four(typing_context: Any, array: Any, offset: Any, value: Any) -> Any:
        """Stores an int32 as four bytes of a uint8 array, at any offset (unaligned)."""

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            array_, offset_, value_ = arguments
            stored = builder.store(value_, _pointer(context, builder, signature.args[0], array_, offset_, 32))
            stored.align = 1
            return context.get_dummy_value()

        return types.void(array, types.intp, types.int32), generate

else:
    # Plain versions for NUMBA_DISABLE_JIT=1, which has no intrinsics, and NUMBA_BOUNDSCHECK=1, which must check them.
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
