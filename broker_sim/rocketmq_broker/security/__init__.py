"""Who may do what, and what certificates are shown."""
