"""RocketMQ's consumers: push, pull, lite pull and pop. Start at `push`."""
