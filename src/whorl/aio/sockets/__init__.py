"""`add_reader`, `add_writer` and the `sock_` methods.

They watch descriptors that belong to the program. Compiled, as each event passes through.
"""
