"""Apache RocketMQ as a Spark data source."""
