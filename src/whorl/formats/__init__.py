"""Formats of what is shown: numbers for people, and traces for viewers."""
