"""What people look at while a query runs: lag and progress. Start at `lag`."""
