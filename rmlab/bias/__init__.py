"""What style is worth: gaps, preferences, effects, accuracies with style held equal, scores with style taken off."""
