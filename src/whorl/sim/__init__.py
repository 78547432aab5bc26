"""The simulated world: the production loop in virtual time, over a simulated network, from a seed."""

from whorl.sim.chance.faults import Faults
from whorl.sim.chance.tape import Tape
from whorl.sim.patches.installed import Patches
from whorl.sim.running.run import Result, open_world, replay, run
from whorl.sim.world.host import Host
from whorl.sim.world.world import Finding, World

__all__ = ["Faults", "Finding", "Host", "Patches", "Result", "Tape", "World", "open_world", "replay", "run"]
