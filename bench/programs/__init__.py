"""Whole programs to measure: clients of real servers, connections, subprocesses, threads."""
