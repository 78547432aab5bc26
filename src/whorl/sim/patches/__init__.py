"""What programs find in Python's modules while a world runs: its clock, its sockets, its chance."""
