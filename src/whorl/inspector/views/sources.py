"""The sources of pictures: all recordings, or that of one process."""

from __future__ import annotations

from whorl.inspector.asking import finding
from whorl.inspector.views.pictures import MOST_EVENTS, ProcessPicture, Reading, picture


class Source:
    """Reads recordings anew at each look, and keeps the last reading of each."""

    def __init__(self, pid: int | None = None) -> None:
        self.pid = pid
        self._latest: dict[str, Reading] = {}

    def look(self) -> list[ProcessPicture]:
        """Return the pictures: that of the one process, or those of all. Raises Failed."""
        if self.pid is None:
            found = finding.all_recordings()
        else:
            found = [finding.recording_of(self.pid, events=MOST_EVENTS)]
        readings = {one.path: Reading.of(one) for one in found}
        pictures = [picture(reading, self._latest.get(path)) for path, reading in readings.items()]
        self._latest = readings
        return pictures
