"""group_member."""
