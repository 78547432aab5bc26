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
    if isinstance(wanted, str):
        if wanted != "epoll":
            raise ValueError(f"the only poller with a name is 'epoll', not {wanted!r}")
        wanted = None
    if wanted is None and hasattr(select, "epoll"):
        return EpollPoller(kernel)
    from whorl.core.pollers.selector import SelectorPoller

    if wanted is not None and not callable(getattr(wanted, "register", None)):
        raise TypeError(f"a poller or a selector was expected, got {wanted!r}")
    return SelectorPoller(wanted)
