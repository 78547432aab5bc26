"""The choice of a loop's poller."""

from __future__ import annotations

import select
from typing import TYPE_CHECKING

from whorl.core.kernel.kernel import Kernel
from whorl.core.pollers.contract import Poller
from whorl.core.pollers.epoll import EpollPoller

if TYPE_CHECKING:
    import selectors


def make_poller(wanted: Poller | selectors.BaseSelector | str | None, kernel: Kernel) -> Poller:
    """Return the wanted poller: one of Whorl's, one around a `selectors` object, or the best available."""
    if isinstance(wanted, Poller):
        return wanted
    refusal = ""
    if isinstance(wanted, str):
        if wanted not in ("epoll", "io_uring"):
            raise ValueError(f"a poller is called 'epoll' or 'io_uring', not {wanted!r}")
        if wanted == "io_uring":
            from whorl.core.pollers.io_uring import UringPoller

            try:
                return UringPoller(kernel)
            except OSError as error:
                refusal = f"io_uring: {error.strerror}"
        wanted = None
    if wanted is None and hasattr(select, "epoll"):
        poller: Poller = EpollPoller(kernel)
    else:
        from whorl.core.pollers.selector import SelectorPoller

        if wanted is not None and not callable(getattr(wanted, "register", None)):
            raise TypeError(f"a poller or a selector was expected, got {wanted!r}")
        poller = SelectorPoller(wanted)
    poller.fallback_reason = refusal
    return poller
