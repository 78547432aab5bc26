"""What a descriptor is in a simulated world: sockets, pipes, epolls, files on a disk."""
