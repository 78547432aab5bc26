"""Where all chance in a simulated world comes from: decisions, made from a seed or read from a tape."""
