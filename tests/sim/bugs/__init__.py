"""Programs that show known bugs of released libraries, unmodified, and the versions that have them."""
