"""How a checkout of Whorl makes its environments and builds; Python alone is enough to start it."""
