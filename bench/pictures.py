"""The pictures of the inspector's guide: the page of a recording, and a trace in speedscope.

    npm install speedscope
    python bench/pictures.py node_modules/speedscope/dist/release

It needs Chromium. Pictures differ from run to run, as the times of a real program do.
"""

import argparse
import base64
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parent.parent
PICTURES = ROOT / "docs" / "pictures"
LARGEST = 150_000  # bytes of a picture


def whorl(*arguments: str, **environment: str) -> None:
    """Run a command of Whorl's."""
    words = [sys.executable, "-m", "whorl", *arguments]
    subprocess.run(words, check=True, env=os.environ | environment)


def photograph(chromium: str, url: str, path: Path, width: int, height: int) -> None:
    """Take a picture of a page."""
    options = ["--headless", "--no-sandbox", "--hide-scrollbars", "--allow-file-access-from-files"]
    options += ["--virtual-time-budget=8000", f"--window-size={width},{height}", f"--screenshot={path}"]
    subprocess.run([chromium, *options, url], check=True, stderr=subprocess.DEVNULL)
    compress(path)
    print(f"{path.relative_to(ROOT)}: {path.stat().st_size:,} bytes")
    if path.stat().st_size > LARGEST:
        raise SystemExit(f"a picture may have {LARGEST:,} bytes")


def compress(path: Path) -> None:
    """Let a picture have at most 256 colours, if Pillow is there."""
    try:
        from PIL import Image
    except ImportError:
        return
    with Image.open(path) as picture:
        picture.convert("RGB").quantize(256, dither=Image.Dither.NONE).save(path, optimize=True)


def in_speedscope(speedscope: Path, trace: Path, folder: Path) -> str:
    """Return the address at which speedscope shows a trace, without a server."""
    name, data = json.dumps(trace.name), base64.b64encode(trace.read_bytes()).decode()
    script = folder / "trace.js"
    script.write_text(f'speedscope.loadFileFromBase64({name}, "{data}")')
    return f"{(speedscope / 'index.html').resolve().as_uri()}#localProfilePath={script.as_posix()}"


def main() -> None:
    """Record the example, and take the pictures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("speedscope", type=Path, help="the folder with speedscope's index.html")
    parser.add_argument("--chromium", default="chromium")
    parser.add_argument("--program", type=Path, default=ROOT / "examples" / "orders.py")
    arguments = parser.parse_args()
    PICTURES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        recording, page, trace = folder / "orders.recording", folder / "orders.html", folder / "orders.json"
        settings = f"threshold=50ms,recording={recording}"
        whorl("run", str(arguments.program.relative_to(Path.cwd())), WHORL_INSPECT=settings)
        whorl("report", str(recording), "-o", str(page))
        whorl("trace", str(recording), "-o", str(trace))
        photograph(arguments.chromium, page.as_uri(), PICTURES / "report.png", 1000, 1160)
        shown = in_speedscope(arguments.speedscope, trace, folder)
        photograph(arguments.chromium, shown, PICTURES / "trace.png", 1200, 230)


if __name__ == "__main__":
    main()
