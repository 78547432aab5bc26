"""`Timer`, `Async`, `Signal`, `Poll`, `Idle`, `Prepare`, `Check`, `FsEvent`, `FsPoll`.

These handles only call back. The files are compiled if a turn runs their handles.
"""
