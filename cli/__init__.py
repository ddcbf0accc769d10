"""The `scratch` command: what it asks of the store, and how that looks on a terminal."""
