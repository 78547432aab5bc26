"""`Loop`: its queues, its phases, one turn, wakeup, opening and closing.

Start at `core/loop/loop`. The room is compiled, since each callback passes through it.
"""
