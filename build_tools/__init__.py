"""How a checkout of Whorl makes its environments and its builds; the standard library is enough to start it."""
