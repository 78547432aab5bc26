"""The simulated world: the production loop in virtual time, over a simulated network, from a seed."""

from whorl.sim.chance.faults import Faults
from whorl.sim.chance.tape import Tape
from whorl.sim.checks.history import Op
from whorl.sim.checks.linearizable import Model
from whorl.sim.errors import HostDied, RealFile, RealProgram
from whorl.sim.files.disk import Disk
from whorl.sim.patches.installed import Patches
from whorl.sim.process.program import Program
from whorl.sim.running.run import Result, open_world, replay, run
from whorl.sim.world.host import Host
from whorl.sim.world.world import Finding, World

__all__ = [
    "Disk", "Faults", "Finding", "Host", "HostDied", "Model", "Op", "Patches", "Program", "RealFile",
    "RealProgram", "Result", "Tape", "World", "open_world", "replay", "run",
]  # fmt: skip
