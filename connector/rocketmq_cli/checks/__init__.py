"""The checks of `rmq check`: this machine, Spark, the cluster. Start at `findings`."""
