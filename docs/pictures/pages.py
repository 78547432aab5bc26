"""Takes `report.png` and `trace.png`: the page of a recording of an example, and its trace in speedscope.

npm install speedscope
python docs/pictures/pages.py node_modules/speedscope/dist/release

It needs Chromium and Pillow. Pictures differ from run to run, as the times of a real program do.
"""

from __future__ import annotations

import base64
import os
import subprocess
import sys
import tempfile
from pathlib import Path

PICTURES = Path(__file__).parent
PROGRAM = "examples/orders.py"
CHROMIUM = (
    *("chromium", "--headless", "--no-sandbox", "--hide-scrollbars"),
    *("--allow-file-access-from-files", "--virtual-time-budget=8000"),
)


def whorl(*arguments: str, **environment: str) -> None:
    """Run a command of Whorl's."""
    words = [sys.executable, "-m", "whorl", *arguments]
    subprocess.run(words, check=True, cwd=PICTURES.parent.parent, env=os.environ | environment)


def photograph(url: str, name: str, width: int, height: int) -> None:
    """Take a picture of a page, with at most 256 colours."""
    from PIL import Image

    path = PICTURES / name
    shot = (f"--window-size={width},{height}", f"--screenshot={path}", url)
    subprocess.run([*CHROMIUM, *shot], check=True, stderr=subprocess.DEVNULL)
    with Image.open(path) as picture:
        picture.convert("RGB").quantize(256, dither=Image.Dither.NONE).save(path, optimize=True)


def main() -> None:
    """Record the example, and take the pictures."""
    speedscope = Path(sys.argv[1], "index.html").resolve().as_uri()
    with tempfile.TemporaryDirectory() as folder:
        recording, page, trace, script = (
            Path(folder, name) for name in ("orders.recording", "orders.html", "orders.json", "trace.js")
        )
        whorl("run", PROGRAM, WHORL_INSPECT=f"threshold=50ms,recording={recording}")
        whorl("report", str(recording), "-o", str(page))
        whorl("trace", str(recording), "-o", str(trace))
        photograph(page.as_uri(), "report.png", 1000, 1160)
        # speedscope shows what a script of this form loads, without a server.
        data = base64.b64encode(trace.read_bytes()).decode()
        script.write_text(f'speedscope.loadFileFromBase64("{trace.name}", "{data}")')
        photograph(f"{speedscope}#localProfilePath={script}", "trace.png", 1200, 230)


if __name__ == "__main__":
    main()
