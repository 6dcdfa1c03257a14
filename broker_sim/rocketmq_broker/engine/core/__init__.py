"""What all rules share: outcomes, refusals, topics, routes, counters. Start at `outcomes`."""
