"""What all rules of the broker share: topics, routes, outcomes, refusals. Start at `outcomes`."""
