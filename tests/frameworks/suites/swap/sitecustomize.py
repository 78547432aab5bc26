"""Makes Whorl the default loop in every Python that finds this file; counts the turns of loops.

Python imports a module of this name by itself when it starts, so it reaches child processes as well. Which
loop is wanted stands in WHORL_SUITE_LOOP; for `asyncio` the turns are counted and nothing else is changed.
Whorl takes the place of uvloop, and not of asyncio, if WHORL_SUITE_AS_UVLOOP names the sources of uvloop.
"""

import os


class Turns:
    """The number of runs and turns of loops in this process so far: Whorl's, and asyncio's own."""

    def __init__(self) -> None:
        self.whorl = 0
        self.asyncio = 0


turns = Turns()


def install(loop: str) -> None:
    import asyncio.base_events

    _count_asyncio(asyncio.base_events.BaseEventLoop)
    if loop != "whorl":
        return
    if sources := os.environ.get("WHORL_SUITE_AS_UVLOOP"):
        _take_the_place_of_uvloop(sources)
    else:
        _take_the_place_of_asyncio()


def _take_the_place_of_uvloop(sources: str) -> None:
    import whorl

    whorl.as_uvloop()
    import uvloop

    uvloop.__path__.append(f"{sources}/uvloop")  # The base classes of its tests are there.
    uvloop.new_event_loop = _counted(whorl.EventLoop)


def _take_the_place_of_asyncio() -> None:
    import asyncio.base_events
    import asyncio.unix_events

    loop_class = _whorl_class()
    for module in (asyncio, asyncio.base_events, asyncio.unix_events):
        for name in ("EventLoop", "SelectorEventLoop", "_UnixSelectorEventLoop", "BaseEventLoop"):
            if hasattr(module, name):
                setattr(module, name, loop_class)
    for name in ("_UnixDefaultEventLoopPolicy", "_DefaultEventLoopPolicy"):
        if policy := getattr(asyncio.unix_events, name, None):
            policy._loop_factory = loop_class


def _count_asyncio(loop_class) -> None:
    run_forever = loop_class.run_forever

    def counted(self):
        turns.asyncio += 1
        run_forever(self)

    loop_class.run_forever = counted


def _whorl_class():
    """Return Whorl's class under the name of asyncio's: some tests look for that name."""
    import whorl

    loop_class = _counted(whorl.EventLoop)
    loop_class.__module__ = "asyncio.unix_events"
    loop_class.__name__ = loop_class.__qualname__ = "_UnixSelectorEventLoop"
    return loop_class


def _counted(loop_class):
    class Counted(loop_class):
        def run_forever(self):
            before = self.metrics().turns
            try:
                super().run_forever()
            finally:
                turns.whorl += self.metrics().turns - before

    return Counted


if "WHORL_SUITE_LOOP" in os.environ:
    install(os.environ["WHORL_SUITE_LOOP"])
