"""Adapters: environments on any server, for common trainers. Import the module of your trainer."""

import atexit
import json
import os
from collections.abc import Mapping
from contextlib import ExitStack
from functools import lru_cache
from typing import Any

__all__ = ["serve"]


def serve(target: str, config: Mapping[str, Any] | None = None) -> str:
    """Serves an environment with these parameters while this process runs: the `base_url` of an adapter.

    `target` is what `ors serve` takes, such as an installed name. The same arguments return the same URL.

    Raises:
        ValueError: it cannot be served; standard error says why.
    """

    def plain(value: Any) -> Any:  # such as those of OmegaConf
        return dict(value) if isinstance(value, Mapping) else list(value)

    given = (config or {}).items()
    return _served(target, tuple(f"{name}={json.dumps(value, default=plain)}" for name, value in given))


@lru_cache
def _served(target: str, settings: tuple[str, ...]) -> str:
    from click.exceptions import Exit  # late: adapters of a server that runs need no command line

    from ors.cli.targets.process import served
    from ors.cli.targets.resolve import words

    stack, variables = ExitStack(), dict(os.environ)
    atexit.register(stack.close)
    try:
        return stack.enter_context(served(target, variant=words(settings)))
    except Exit:
        raise ValueError(f"{target} cannot be served with {', '.join(settings) or 'its defaults'}") from None
    finally:
        os.environ.update(variables)  # a command forgets its keys, and a trainer needs them
