"""Recordings: the file that a process leaves, its readers, and the views that are made of it."""
