"""One frozen class per request and reply, with its access right. Start at `core`."""
