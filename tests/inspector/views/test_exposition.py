"""The figures of a recording for Prometheus."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.inspector.views.made_recordings import Made, S, busy_server
from tests.inspector.views.test_pictures import NOW, reading
from whorl.inspector.views.pictures import Reading

prometheus_client = pytest.importorskip("prometheus_client", reason="it writes and reads the text")
from whorl.inspector.views import exposition  # noqa: E402


def collector(made: Made, *labels: str) -> exposition.RecordingCollector:
    return exposition.RecordingCollector(reading(made), None, exposition.labels_of(labels))


def text_of(made: Made, *labels: str) -> str:
    return exposition.as_text(collector(made, *labels))


def samples(made: Made, *labels: str) -> dict[tuple[str, str], float]:
    """Return the values by their names and labels, as Prometheus' own parser finds them."""
    from prometheus_client.parser import text_string_to_metric_families as parse

    return {
        (
            sample.name,
            ",".join(f"{name}={value}" for name, value in sorted(sample.labels.items())),
        ): sample.value
        for family in parse(text_of(made, *labels))
        for sample in family.samples
    }


def test_text_is_read_by_prometheus() -> None:
    found = samples(busy_server(Made(), NOW))
    begin = "asyncio_eventloop_"
    assert found[f"{begin}turns_total", "loop=1"] == 1_000_000
    assert found[f"{begin}bytes_total", "direction=in,loop=1"] == 9e9
    assert found[f"{begin}time_seconds_total", "loop=1,state=idle"] == 150
    assert found[f"{begin}time_seconds_total", "loop=1,state=active"] == 50
    assert found[f"{begin}tasks", "loop=1,state=all"] == 1004
    assert found[f"{begin}handles", "kind=all,loop=1"] == 43
    assert found[f"{begin}stalls_total", ""] == 2
    assert found[f"{begin}starved_total", ""] == 5
    assert found[f"{begin}utilization_ratio", "loop=1"] == 0.25


def test_utilization_is_that_since_an_earlier_reading() -> None:
    def slept_until(now: int, idle_ns: int) -> Reading:
        made = Made()
        made.loop(turns=1, run_began_ns=NOW - 10 * S, idle_ns=idle_ns)
        return Reading(reading(made).found, reading(made).loops, now)

    earlier, later = slept_until(NOW, 9 * S), slept_until(NOW + S, 9 * S + 800_000_000)
    families = {family.name: family for family in exposition.RecordingCollector(later, earlier).collect()}
    used = families["asyncio_eventloop_utilization_ratio"].samples[0].value
    assert used == pytest.approx(0.2)


def test_histograms_are_cumulated() -> None:
    found = samples(busy_server(Made(), NOW))
    name = "asyncio_eventloop_away_seconds"
    assert found[f"{name}_bucket", "le=+Inf,loop=1"] == found[f"{name}_count", "loop=1"] == 10201
    assert found[f"{name}_bucket", "le=1e-06,loop=1"] == 10000


def test_names_and_texts_are_those_of_the_collector_of_a_process() -> None:
    from whorl.inspector.prometheus import Collector

    def heads(families: Any) -> set[tuple[str, str, str]]:
        return {(family.name, family.type, family.documentation) for family in families}

    more = heads(collector(busy_server(Made(), NOW)).collect()) ^ heads(Collector([]).describe())
    assert [name for name, *_ in more] == ["asyncio_eventloop_loops_left_out"]  # The other one shows all.


def test_labels_are_added_and_escaped() -> None:
    assert 'ready{job="a\\"b\\\\",loop="1"} 3.0' in text_of(busy_server(Made(), NOW), 'job=a"b\\')
    assert samples(busy_server(Made(), NOW), "job=x")["asyncio_eventloop_ready", "job=x,loop=1"] == 3


@pytest.mark.parametrize("label", ["job", "1=2", "=x", "loop=1", "le=1", "__name__=x", "a b=c"])
def test_wrong_label_is_refused(label: str) -> None:
    with pytest.raises(ValueError, match="label"):
        exposition.labels_of([label])


def test_label_is_given_once() -> None:
    with pytest.raises(ValueError, match="already"):
        exposition.labels_of(["a=1", "a=2"])


def test_closed_loop_is_left_out() -> None:
    made = Made()
    made.loop(state=2)
    made.loop(1, run_began_ns=NOW - S)
    assert {key[1] for key in samples(made) if key[0].endswith("turns_total")} == {"loop=2"}


def test_json_has_the_same_samples() -> None:
    made = busy_server(Made(), NOW)
    found = json.loads(exposition.as_json(collector(made)))
    assert found["asyncio_eventloop_ready"] == [{"labels": {"loop": "1"}, "value": 3}]
    assert sum(map(len, found.values())) == len(samples(made))
