"""The recording of what loops do: its layout in memory, and the recorder that writes it."""
