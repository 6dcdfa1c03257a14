"""Consumer groups: pure rules (who reads what, when to pull, what is done) and their shell."""
