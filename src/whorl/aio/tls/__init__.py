"""TLS on bytes: the engine, its records, its write path.

Each encrypted packet passes through. Compiled.
"""
