"""The machine itself, without asyncio: timers on a loop that ends when nothing is left to wait for.

`python examples/machine_timer.py`
"""

import whorl
from whorl.handles import Prepare, Timer

MS = 1_000_000  # times are integer nanoseconds


def main() -> None:
    loop = whorl.Loop()
    start = loop.now()
    ticks = 0

    def tick(timer: Timer) -> None:
        nonlocal ticks
        ticks += 1
        print(f"{(loop.now() - start) // MS:4d} ms  tick {ticks}")
        if ticks == 5:
            timer.close()

    def once(timer: Timer) -> None:
        print(f"{(loop.now() - start) // MS:4d} ms  once")
        timer.close()

    def about_to_sleep(prepare: Prepare) -> None:
        print(f"         the loop will sleep for {loop.backend_timeout() / MS:.1f} ms at most")

    Timer(loop).start(tick, 100 * MS, repeat_ns=100 * MS)
    Timer(loop).start(once, 250 * MS)
    prepare = Prepare(loop)
    prepare.start(about_to_sleep)
    prepare.unref()  # it watches the loop, but does not keep it alive

    loop.run()
    print(f"nothing is left to wait for, after {loop.metrics().turns} turns")

    prepare.close()
    loop.run()  # closing is finished by the loop
    loop.close()


if __name__ == "__main__":
    main()
