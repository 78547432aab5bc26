"""The ways into the loop: `run`, `Runner`, the policy, one turn at a time, a guest in another main loop."""
