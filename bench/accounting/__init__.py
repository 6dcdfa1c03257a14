"""Counts every message after reads through kills: none missing, none twice, all in order."""
