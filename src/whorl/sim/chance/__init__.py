"""All chance of a simulated world: decisions, made from a seed or read from a tape."""
