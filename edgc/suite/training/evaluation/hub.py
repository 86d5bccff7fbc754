"""The Hugging Face hub: is it there, and how to keep its clients from waiting for it."""

from __future__ import annotations

import contextlib
import threading
import urllib.request
from collections.abc import Iterator


def hub_reachable(seconds: float = 5.0) -> bool:
    """Whether the hub answers within `seconds`. False at once in offline mode (HF_HUB_OFFLINE=1)."""
    from datasets import config
    from huggingface_hub import constants

    if constants.HF_HUB_OFFLINE or config.HF_HUB_OFFLINE:
        return False
    answered = threading.Event()

    def ask() -> None:
        request = urllib.request.Request(constants.ENDPOINT, method="HEAD")
        with contextlib.suppress(OSError, ValueError), urllib.request.urlopen(request, timeout=seconds):
            answered.set()

    asking = threading.Thread(target=ask, daemon=True)  # a name look-up has no time limit of its own
    asking.start()
    asking.join(seconds)
    return answered.is_set()


@contextlib.contextmanager
def offline() -> Iterator[None]:
    """Hub clients use what is cached and fail at once on the rest. The settings are put back on leaving."""
    from datasets import config
    from huggingface_hub import constants

    # the environment variables are read once, on import: too early for a process that has imported them
    before = constants.HF_HUB_OFFLINE, config.HF_HUB_OFFLINE
    constants.HF_HUB_OFFLINE = config.HF_HUB_OFFLINE = True
    try:
        yield
    finally:
        constants.HF_HUB_OFFLINE, config.HF_HUB_OFFLINE = before
