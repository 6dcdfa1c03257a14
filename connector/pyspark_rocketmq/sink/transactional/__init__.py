"""transactional."""
