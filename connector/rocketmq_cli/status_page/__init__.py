"""A cluster's status as web pages and as metrics: read only, rendered here, without scripts. Start
at `web`.
"""
