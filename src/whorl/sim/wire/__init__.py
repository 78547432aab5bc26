"""The space between hosts: lines with latency and faults, names, and the ports of each host."""
