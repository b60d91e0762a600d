"""The program of a process in which agents decide: `python -m babyai.web.agent_worker`, started by `agent_pool.py`.

It reads pickled calls from its standard input and writes their results to its standard output, until the input ends.
Only its parent has the other ends, so it ends with its parent, even if that is killed.
"""

import os
import pickle
import sys
from collections.abc import Callable
from typing import Any

NO_TORCH = "watching an agent needs torch: pip install 'babyai[agents]'"


def main() -> None:
    """Answers calls. An error that nobody expects ends the process with a traceback."""
    # For networks so small, more threads only cost time, above all when the cores are busy.
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    results = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    # What libraries print must not get among the results.
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    while True:
        try:
            function, arguments = pickle.load(sys.stdin.buffer)
            results.write(pickle.dumps(_try(function, arguments)))
            results.flush()
        except (EOFError, BrokenPipeError):
            return


def _try(function: Callable[..., Any], arguments: tuple[Any, ...]) -> tuple[str | None, Any]:
    """What went wrong, and the result."""
    try:
        return None, function(*arguments)
    except ModuleNotFoundError:
        return NO_TORCH, None
    except (ValueError, OSError) as error:
        return str(error), None


if __name__ == "__main__":
    main()
