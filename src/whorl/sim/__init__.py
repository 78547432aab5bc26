"""The simulated world: the production loop in virtual time, over a simulated network, from a seed."""

from whorl.sim.chance.faults import Cpu, Faults
from whorl.sim.chance.strategies import Delay, Edge, Pct, Random
from whorl.sim.chance.tape import Tape
from whorl.sim.checks.history import Op
from whorl.sim.checks.linearizable import Model
from whorl.sim.errors import HostDied, RealFile, RealProgram
from whorl.sim.files.disk import Disk
from whorl.sim.patches.current import current
from whorl.sim.process.program import Program
from whorl.sim.running.check import check
from whorl.sim.running.inside import chance, reached
from whorl.sim.running.report import Report
from whorl.sim.running.result import Result, SimulationFailed
from whorl.sim.running.run import open_world, replay, run
from whorl.sim.running.shrink import Failure, shrink
from whorl.sim.running.testing import test
from whorl.sim.wire.net import Net
from whorl.sim.world.host import Host
from whorl.sim.world.options import Patches
from whorl.sim.world.world import Finding, World

__all__ = [
    "Cpu",
    "Delay",
    "Disk",
    "Edge",
    "Failure",
    "Faults",
    "Finding",
    "Host",
    "HostDied",
    "Model",
    "Net",
    "Op",
    "Patches",
    "Pct",
    "Program",
    "Random",
    "RealFile",
    "RealProgram",
    "Report",
    "Result",
    "SimulationFailed",
    "Tape",
    "World",
    "chance",
    "check",
    "current",
    "open_world",
    "reached",
    "replay",
    "run",
    "shrink",
    "test",
]
