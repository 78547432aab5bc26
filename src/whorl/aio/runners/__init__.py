"""`run`, `Runner`, the policy, one turn at a time, a guest in another main loop.

The ways into the loop.
"""
