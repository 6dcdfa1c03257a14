"""The only code that touches files, and RocketMQ's configuration files. Start at `files`."""
