"""The rules of a download: which pulls to send, what has arrived, when to give up. Pure; start at
`contract`, then `fetch_window`.
"""
