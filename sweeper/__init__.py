"""The sweeper: one pass over a store, a schedule for a host process, and a process of its own."""
