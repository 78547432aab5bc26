"""`Timer`, `Async`, `Signal`, `Poll`, `Idle`, `Prepare`, `Check`, `FsEvent`, `FsPoll`.

Handles that only call back. Compiled where a turn runs them.
"""
