"""The benchmark: what the connector does beside what Spark itself can do, in the same run."""
