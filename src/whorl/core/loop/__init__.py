"""`Loop`: its queues, its phases, one turn, wakeup, opening and closing.

Start at `core/loop/loop`. Compiled, as each callback passes through.
"""
