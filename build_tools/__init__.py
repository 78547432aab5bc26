"""The makers of a checkout's environments and builds; Python alone is enough to start them."""
