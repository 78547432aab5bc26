"""`StreamReader`, `StreamWriter`, the buffer behind them, stream servers.

Transports write straight into the reader's buffer. Compiled, as each read passes through.
"""
