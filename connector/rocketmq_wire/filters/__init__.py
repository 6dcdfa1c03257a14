"""The filters of subscriptions: tags and SQL92. Start at `tags`."""
