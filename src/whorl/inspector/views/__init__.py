"""The live view, and the figures of a recording for Prometheus."""
