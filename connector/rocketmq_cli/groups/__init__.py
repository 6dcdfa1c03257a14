"""Consumer groups for the verbs and the status page: offsets, members, resets. Start at `lag`."""
