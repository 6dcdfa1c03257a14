"""What the jobs in spark_jobs share: arguments, checks, sessions, progress.

Start at `arguments`.
"""
