"""adoption."""
