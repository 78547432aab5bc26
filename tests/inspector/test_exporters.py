"""The exporters for Prometheus and OpenTelemetry: names, labels, and counters that never go back."""

from __future__ import annotations

import asyncio
import threading

import pytest

import whorl


def test_prometheus_counters_never_go_back_over_a_thousand_scrapes() -> None:
    client = pytest.importorskip("prometheus_client")
    parser = pytest.importorskip("prometheus_client.parser")
    from whorl.inspector.prometheus import Collector

    registry = client.CollectorRegistry()
    loop = whorl.new_event_loop()
    registry.register(Collector([loop]))
    ended = threading.Event()

    async def load() -> None:
        while not ended.is_set():
            await asyncio.sleep(0)

    thread = threading.Thread(target=loop.run_until_complete, args=(load(),))
    thread.start()
    before: dict[object, float] = {}
    try:
        for _ in range(1000):
            for family in parser.text_string_to_metric_families(client.generate_latest(registry).decode()):
                for sample in family.samples:
                    if family.type in ("counter", "histogram"):
                        key = (sample.name, *sorted(sample.labels.items()))
                        assert sample.value >= before.get(key, 0)
                        before[key] = sample.value
    finally:
        ended.set()
        thread.join()
        loop.close()
    assert any(key[0] == "asyncio_eventloop_turns_total" and value > 0 for key, value in before.items())  # type: ignore[index]
    assert "loop=" not in client.generate_latest(registry).decode()  # a closed loop's series end


def test_opentelemetry_reads_counters_and_percentiles() -> None:
    sdk = pytest.importorskip("opentelemetry.sdk.metrics")
    export = pytest.importorskip("opentelemetry.sdk.metrics.export")
    from whorl.inspector.opentelemetry import instrument

    reader = export.InMemoryMetricReader()
    provider = sdk.MeterProvider([reader])
    instrument(provider)

    async def look() -> set[str]:
        await asyncio.sleep(0.01)
        data = reader.get_metrics_data()
        return {
            metric.name
            for one in data.resource_metrics
            for scope in one.scope_metrics
            for metric in scope.metrics
        }

    names = whorl.run(look())
    assert {"asyncio.eventloop.turns", "asyncio.eventloop.bytes", "asyncio.eventloop.away.p99"} <= names
    provider.shutdown()
