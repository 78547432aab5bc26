"""The open files of a simulated world: sockets, pipes, epolls, files on a disk."""
