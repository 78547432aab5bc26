"""The host: threads, signals, children, name resolution.

They belong to the process, so all its loops share them.
"""
