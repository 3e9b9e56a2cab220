"""See what a reward model really rewards."""
