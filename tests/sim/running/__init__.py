"""Tests of the simulated runs."""
