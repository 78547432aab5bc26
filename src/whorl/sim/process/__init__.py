"""The process of a simulated host, as its loop sees it: kernel, signals, threads, programs."""
