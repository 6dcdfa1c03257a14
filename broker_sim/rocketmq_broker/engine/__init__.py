"""The broker's rules: request and time in, outcome out. No network, no clock."""
