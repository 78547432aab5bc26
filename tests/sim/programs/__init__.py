"""Programs that real libraries make up, unmodified, for simulated worlds."""
