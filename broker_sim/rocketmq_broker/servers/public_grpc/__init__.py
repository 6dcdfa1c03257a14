"""RocketMQ's public gRPC service, `apache.rocketmq.v2`, over the broker's own requests."""
