"""Dask on a cluster of two processes, each with a loop of Whorl.

$ DASK_DISTRIBUTED__ADMIN__EVENT_LOOP=uvloop whorl run --as-uvloop dask_cluster.py
"""

# /// script
# dependencies = ["distributed", "whorl-loop"]
# ///

from distributed import Client, LocalCluster
from distributed.worker import get_worker


def square(number: int) -> int:
    return number * number


def loop_of_the_worker() -> str:
    return type(get_worker().loop.asyncio_loop).__module__


if __name__ == "__main__":
    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster:
        with Client(cluster) as client:
            assert client.submit(loop_of_the_worker).result() == "whorl.aio.loop.event_loop"
            assert sum(client.gather(client.map(square, range(100)))) == 328_350
