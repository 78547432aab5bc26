"""The exporters for Prometheus and OpenTelemetry: names, values, labels, and counters that never go back."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import itertools
import logging
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

import whorl
from tests.children import bare_environment
from tests.core.loop_fakes import in_child
from tests.inspector.conftest import StallsSeen
from whorl.core import Histogram
from whorl.core.metrics import _upper_bound
from whorl.core.states import PLACES
from whorl.inspector import Inspector, observed
from whorl.inspector.opentelemetry import PREFIX as OTEL
from whorl.inspector.opentelemetry import Instrumentation, instrument
from whorl.inspector.prometheus import Collector
from whorl.inspector.views.exported import BOUNDS, PREFIX, cumulated
from whorl.inspector.watching import runs

Key = tuple[str, tuple[tuple[str, str], ...]]


def key(name: str, **labels: str) -> Key:
    return name, tuple(sorted(labels.items()))


def registry_of(*loops: Any) -> CollectorRegistry:
    """Return a registry with a collector of these loops, or of all."""
    registry = CollectorRegistry(auto_describe=True)
    registry.register(Collector(loops or None))
    return registry


def families_of(registry: CollectorRegistry) -> dict[str, Any]:
    text = generate_latest(registry).decode()
    return {family.name: family for family in text_string_to_metric_families(text)}


def scrape(registry: CollectorRegistry) -> dict[Key, float]:
    """Return the values of a scrape by name, without the prefix, and labels."""
    return {
        key(sample.name.removeprefix(PREFIX), **sample.labels): sample.value
        for family in families_of(registry).values()
        for sample in family.samples
    }


def label(loop: Any) -> str:
    return str(runs.number_of(loop))


@contextlib.contextmanager
def running(loop: whorl.EventLoop) -> Iterator[whorl.EventLoop]:
    """Run a loop in another thread; close it at the end."""
    began = threading.Event()
    loop.call_soon(began.set)
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    began.wait()
    try:
        yield loop
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def histogram_of(*numbers: int) -> Histogram:
    counts: dict[int, int] = {}
    for number in numbers:
        place = next(place for place in range(PLACES) if number <= _upper_bound(place))
        counts[place] = counts.get(place, 0) + 1
    return Histogram(sum(numbers), max(numbers), counts)


# Prometheus.


def test_counters_never_go_back_over_a_thousand_scrapes() -> None:
    loop = whorl.new_event_loop()
    registry = registry_of(loop)
    ended = threading.Event()

    async def load() -> None:
        number = 0
        while not ended.is_set():
            number += 1
            await asyncio.sleep(0 if number % 10 else 0.0001)

    thread = threading.Thread(target=loop.run_until_complete, args=(load(),))
    thread.start()
    before: dict[Key, float] = {}
    try:
        for _ in range(1000):
            for family in registry.collect():
                if family.type not in ("counter", "histogram"):
                    continue
                for sample in family.samples:
                    place = key(sample.name, **sample.labels)
                    assert sample.value >= before.get(place, 0), place
                    before[place] = sample.value
    finally:
        ended.set()
        thread.join()
        loop.close()
    own = label(loop)
    assert before[key(f"{PREFIX}turns_total", loop=own)] > 0
    assert before[key(f"{PREFIX}time_seconds_total", loop=own, state="active")] > 0
    assert before[key(f"{PREFIX}away_seconds_count", loop=own)] > 0


def test_a_collector_shows_what_metrics_says() -> None:
    with running(whorl.new_event_loop()) as loop:
        own = label(loop)
        asyncio.run_coroutine_threadsafe(asyncio.sleep(0.001), loop).result()
        before, seen, after = loop.metrics(), scrape(registry_of(loop)), loop.metrics()
        for name in ("turns", "events", "callbacks", "accepts", "errors_reported"):
            assert getattr(before, name) <= seen[key(f"{name}_total", loop=own)] <= getattr(after, name)
        assert seen[key("bytes_total", loop=own, direction="in")] == after.bytes_in
        assert seen[key("jobs_waiting", loop=own)] == seen[key("jobs_running", loop=own)] == 0
        assert seen[key("tasks", loop=own, state="waiting")] == 0


def test_handles_and_tasks_are_shown_by_kind_and_state() -> None:
    async def main() -> tuple[dict[Key, float], str]:
        server = await asyncio.start_server(lambda reader, writer: None, "127.0.0.1", 0)
        sleeper = asyncio.create_task(asyncio.sleep(50))
        await asyncio.sleep(0)
        other = asyncio.create_task(asyncio.sleep(0))  # which has not begun
        loop = asyncio.get_running_loop()
        seen = scrape(registry_of(loop))
        sleeper.cancel()
        await other
        server.close()
        await server.wait_closed()
        return seen, label(loop)

    seen, own = whorl.run(main())
    assert seen[key("handles", loop=own, kind="Acceptor")] == 1
    for state in ("running", "scheduled", "waiting"):
        assert seen[key("tasks", loop=own, state=state)] == 1


def test_a_stuck_loop_is_shown() -> None:
    with running(whorl.new_event_loop()) as loop:
        registry = registry_of(loop)
        stuck, free = threading.Event(), threading.Event()
        loop.call_soon_threadsafe(lambda: (stuck.set(), free.wait()))
        stuck.wait()
        own = label(loop)
        try:
            first, second = scrape(registry), scrape(registry)
        finally:
            free.set()
        assert first[key("turns_total", loop=own)] == second[key("turns_total", loop=own)] > 0
        assert second[key("utilization_ratio", loop=own)] == 1.0
        active = key("time_seconds_total", loop=own, state="active")
        assert second[active] > first[active]


def test_utilization_is_that_since_the_last_scrape() -> None:
    loop = whorl.new_event_loop()
    registry, own = registry_of(loop), label(loop)
    loop.run_until_complete(asyncio.sleep(0.05))
    assert scrape(registry)[key("utilization_ratio", loop=own)] < 1
    assert scrape(registry)[key("utilization_ratio", loop=own)] == 0  # It does not run.
    loop.close()


def test_a_collector_of_all_loops_shows_those_that_run_now_and_later() -> None:
    idle = whorl.new_event_loop()
    with running(whorl.new_event_loop()) as earlier:
        registry = registry_of()
        with running(whorl.new_event_loop()) as later:
            shown = {dict(labels).get("loop") for _, labels in scrape(registry)}
            assert {label(earlier), label(later)} <= shown
            assert int(label(earlier)) < int(label(later))
            assert all(loop is not idle for loop in runs.numbered_loops())
    idle.close()


def test_the_series_of_a_closed_loop_end_and_no_other_loop_goes_on_with_them() -> None:
    registry = registry_of()
    with running(whorl.new_event_loop()) as loop:
        own = label(loop)
        assert key("turns_total", loop=own) in scrape(registry)
    assert key("turns_total", loop=own) not in scrape(registry)
    with running(whorl.new_event_loop()) as other:
        seen = scrape(registry)
        assert key("turns_total", loop=label(other)) in seen
        assert key("turns_total", loop=own) not in seen


def drop(things: list[Any]) -> None:
    things.clear()
    gc.collect()


def test_an_exporter_keeps_no_loop_alive() -> None:
    loops = [whorl.new_event_loop()]
    registry, own = registry_of(loops[0]), label(loops[0])
    loops[0].run_until_complete(asyncio.sleep(0))
    assert key("turns_total", loop=own) in scrape(registry)
    with pytest.warns(ResourceWarning, match="unclosed"):
        drop(loops)
    assert key("turns_total", loop=own) not in scrape(registry)


def test_loops_come_in_the_order_of_their_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs, "_next_number", itertools.count(999_995))
    loops = [whorl.new_event_loop() for _ in range(12)]
    numbers = [int(label(loop)) for loop in loops]
    family = next(iter(registry_of(*reversed(loops)).collect()))
    assert [int(sample.labels["loop"]) for sample in family.samples] == sorted(numbers)
    assert [*map(str, numbers)] != sorted(map(str, numbers))
    for loop in loops:
        loop.close()


def test_a_loop_that_is_not_of_whorls_is_refused() -> None:
    with pytest.raises(TypeError, match=r"loops of Whorl's, not 7"):
        Collector([7])


def test_names_units_and_help_are_as_prometheus_wants_them() -> None:
    families = list(Collector([]).describe())
    assert len({family.name for family in families}) == len(families)
    for family in families:
        assert family.name.startswith(PREFIX)
        assert family.documentation.endswith(".")
        assert not family.name.endswith(("_total", "_count", "_sum", "_bucket", "_info"))
        assert family.unit in ("", "seconds", "bytes", "ratio")
        assert family.name.endswith(family.unit)
    assert {family.unit for family in families if family.type == "histogram"} == {"seconds"}


def test_two_collectors_in_a_registry_are_refused() -> None:
    registry = registry_of()
    with pytest.raises(ValueError, match="Duplicated"):
        registry.register(Collector())


def test_an_entry_of_a_histogram_never_passes_to_another_bound() -> None:
    earlier = histogram_of(995)  # in a bucket with numbers above the first bound
    later = earlier + histogram_of(5, 2_000_000)
    assert all(one[1] <= other[1] for one, other in zip(cumulated(earlier), cumulated(later), strict=True))


def test_bounds_are_powers_of_four_and_count_all_below() -> None:
    counts = dict(cumulated(histogram_of(10, 900, 3000, 1_000_000, 10**12)))
    assert list(counts)[:3] == ["1e-06", "4e-06", "1.6e-05"]
    assert (counts["1e-06"], counts["4e-06"], counts["0.001024"]) == (2, 3, 4)
    assert (counts[repr(BOUNDS[-1] / 1e9)], counts["+Inf"]) == (4, 5)
    assert 16 < BOUNDS[-1] / 1e9 < 17


def test_stalls_are_counted_while_the_inspector_runs(inspect: Callable[..., Inspector]) -> None:
    registry = registry_of()
    assert key("stalls_total") not in scrape(registry)
    inspected = inspect(threshold=0.02, socket=False)
    seen = StallsSeen(inspected)

    async def main() -> None:
        time.sleep(0.2)

    whorl.run(main())
    seen.wait_for(lambda stall: stall.ended)
    values = scrape(registry)
    assert values[key("stalls_total")] == len(inspected.stalls()) >= 1
    assert values[key("starved_total")] == inspected.starved()
    inspected.stop()
    assert key("stalls_total") not in scrape(registry)


# The loops that run.


def test_a_listener_that_raises_does_not_keep_a_loop_from_running(caplog: pytest.LogCaptureFixture) -> None:
    told: list[Any] = []

    def fail(loop: Any) -> None:
        raise ValueError("from the listener")

    runs.add_listener(fail)
    runs.add_listener(told.append)
    try:
        assert whorl.run(asyncio.sleep(0, "ran")) == "ran"
    finally:
        runs.remove_listener(fail)
        runs.remove_listener(told.append)
    assert len(told) >= 1
    assert "from the listener" in caplog.text
    caplog.clear()
    assert whorl.run(asyncio.sleep(0, "ran")) == "ran"
    assert caplog.text == ""


def test_a_forked_child_numbers_its_own_loops_anew() -> None:
    registry = registry_of()
    with running(whorl.new_event_loop()), running(whorl.new_event_loop()):
        assert len(scrape(registry)) > 0
        inherited = whorl.new_event_loop()
        inherited.run_until_complete(asyncio.sleep(0))
        ready, forked = threading.Event(), threading.Event()

        def hold() -> None:
            with runs._lock:
                ready.set()
                forked.wait()

        holder = threading.Thread(target=hold)
        holder.start()
        ready.wait()

        def child() -> None:
            runs.add_listener(runs.number_of)  # A thread of the parent holds its lock.
            own = whorl.new_event_loop()
            own.run_until_complete(asyncio.sleep(0))
            names = {dict(labels).get("loop") for name, labels in scrape(registry) if name == "turns_total"}
            assert names == {"1"}, names
            inherited.fork()  # It goes on in the child.
            names = {dict(labels).get("loop") for name, labels in scrape(registry) if name == "turns_total"}
            assert names == {"1", "2"}, names

        try:
            assert in_child(child) == 0
        finally:
            forked.set()
            holder.join()
            inherited.close()


# OpenTelemetry.


class Reading:
    """A provider with a reader, and what it has read last."""

    def __init__(self) -> None:
        self.reader = InMemoryMetricReader()
        self.provider = MeterProvider([self.reader], shutdown_on_exit=False)
        self.metrics: dict[str, Any] = {}

    def read(self) -> dict[Key, float]:
        data = self.reader.get_metrics_data()
        found = [
            metric
            for resource in (data.resource_metrics if data is not None else ())
            for scope in resource.scope_metrics
            for metric in scope.metrics
        ]
        self.metrics = {metric.name: metric for metric in found}
        return {
            key(metric.name.removeprefix(OTEL), **point.attributes): point.value
            for metric in found
            for point in metric.data.data_points
        }


@pytest.fixture
def reading() -> Iterator[Reading]:
    made = Reading()
    yield made
    instrument(made.provider).stop()
    made.provider.shutdown()


def test_instruments_show_counters_and_percentiles_in_seconds(reading: Reading) -> None:
    instrument(reading.provider)

    async def main() -> tuple[dict[Key, float], dict[Key, float], str, Any]:
        for _ in range(10):
            await asyncio.sleep(0.001)
        time.sleep(0.3)
        await asyncio.sleep(0.001)
        loop: Any = asyncio.get_running_loop()
        first = reading.read()
        await asyncio.sleep(0.001)
        return first, reading.read(), label(loop), loop.metrics()

    first, second, own, metrics = whorl.run(main())
    assert 0 < first[key("turns", loop=own)] <= second[key("turns", loop=own)] <= metrics.turns
    assert second[key("bytes", loop=own, direction="out")] == metrics.bytes_out
    assert 0.3 <= first[key("away.max", loop=own)] < 60
    assert 0 < first[key("away.p50", loop=own)] < 0.3
    assert 0 < second[key("away.max", loop=own)] < 0.3  # since the first reading
    assert 0 < first[key("utilization", loop=own)] <= 1
    assert second[key("time", loop=own, state="idle")] >= first[key("time", loop=own, state="idle")] > 0
    assert second[key("tasks", loop=own, state="running")] == 1
    assert second[key("ready", loop=own)] >= 0
    units = {name.removeprefix(OTEL): metric.unit for name, metric in reading.metrics.items()}
    assert (units["bytes"], units["time"], units["away.p99"]) == ("By", "s", "s")
    assert (units["utilization"], units["turns"], units["tasks"]) == ("1", "{turn}", "{task}")
    assert all(metric.description for metric in reading.metrics.values())


def test_instruments_and_the_collector_show_the_same() -> None:
    made: list[str] = []

    class Meter:
        def __getattr__(self, name: str) -> Callable[..., None]:
            return lambda name, callbacks, unit, text: made.append(name.removeprefix(OTEL))

    Instrumentation(Meter())  # type: ignore[arg-type]
    families = Collector([]).describe()
    assert {re.sub(r"\.(p\d+|max)$", "", name) for name in made} == {
        re.sub("_(seconds|ratio)$", "", family.name.removeprefix(PREFIX)) for family in families
    }


def test_all_instruments_share_one_look(reading: Reading, monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[None] = []
    plain = observed.Observed.look

    def counted(self: observed.Observed) -> Any:
        looks.append(None)
        return plain(self)

    monkeypatch.setattr(observed.Observed, "look", counted)
    instrument(reading.provider)
    for number in range(1, 4):
        reading.read()
        assert len(looks) == number


def test_instrumenting_twice_is_instrumenting_once(
    reading: Reading, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING), running(whorl.new_event_loop()) as loop:
        made = instrument(reading.provider)
        assert instrument(reading.provider) is made
        turns = key("turns", loop=label(loop))
        assert turns in reading.read()
        made.stop()
        made.stop()
        assert reading.read() == {}
        assert made._observed._loop_runs not in runs._listeners
        assert instrument(reading.provider) is made
        assert turns in reading.read()
    assert turns not in reading.read()
    assert caplog.text == ""


def test_stalls_are_shown_to_opentelemetry(reading: Reading, inspect: Callable[..., Inspector]) -> None:
    instrument(reading.provider)
    assert key("stalls") not in reading.read()
    inspect(threshold=10, socket=False)
    seen = reading.read()
    assert (seen[key("stalls")], seen[key("starved")]) == (0, 0)


# The libraries.


@pytest.mark.parametrize(
    ("name", "library"), [("Collector", "prometheus_client"), ("instrument", "opentelemetry")]
)
def test_an_exporter_imports_its_library_at_its_first_use(name: str, library: str) -> None:
    code = f"""
import sys, whorl.inspector
assert not any(name.startswith({library!r}) for name in sys.modules)
sys.modules[{library!r}] = None
try:
    whorl.inspector.{name}
except ImportError as error:
    print(error)
for name in [name for name in sys.modules if name.startswith({library!r})]:
    del sys.modules[name]
whorl.inspector.{name}
assert {library!r} in sys.modules and "opentelemetry.sdk" not in sys.modules
"""
    answer = subprocess.run(
        [sys.executable, "-c", code],
        env=bare_environment(),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (answer.returncode, answer.stderr) == (0, "")
    assert library in answer.stdout


def test_another_name_is_no_attribute() -> None:
    assert not hasattr(whorl.inspector, "Exporter")
