"""Options as users write them, checked once. Start at `tables`, then `values`."""
