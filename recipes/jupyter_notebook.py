"""A notebook of Jupyter, in a kernel that runs on Whorl.

$ python jupyter_notebook.py
"""

# /// script
# dependencies = ["ipykernel", "nbclient", "nbformat", "whorl-loop"]
# ///

import json
import sys
import tempfile
from pathlib import Path

from jupyter_client.kernelspec import KernelSpecManager
from jupyter_client.manager import AsyncKernelManager
from nbclient import NotebookClient
from nbformat.v4 import new_code_cell, new_notebook

import whorl

KERNEL = {
    "argv": [sys.executable, "-m", "whorl", "run", "-m", "ipykernel_launcher", "-f", "{connection_file}"],
    "display_name": "Python on Whorl",
    "language": "python",
}
CELLS = [
    "import asyncio",
    "task = asyncio.create_task(asyncio.sleep(0.01, type(asyncio.get_running_loop()).__module__))",
    "await task",
]


async def main() -> None:
    notebook = new_notebook(cells=[new_code_cell(cell) for cell in CELLS])
    with tempfile.TemporaryDirectory() as folder:
        # `jupyter kernelspec install --user FOLDER` gives such a kernel to all notebooks.
        Path(folder, "whorl").mkdir()
        Path(folder, "whorl", "kernel.json").write_text(json.dumps(KERNEL))
        kernels = KernelSpecManager(kernel_dirs=[folder])
        manager = AsyncKernelManager(kernel_name="whorl", kernel_spec_manager=kernels)
        await NotebookClient(notebook, km=manager, timeout=60).async_execute()
    (output,) = notebook.cells[-1].outputs
    assert output.data["text/plain"] == "'whorl.aio.loop.event_loop'"


if __name__ == "__main__":
    whorl.run(main())
