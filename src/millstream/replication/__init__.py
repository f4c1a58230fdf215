"""What a leader knows of its followers, and what a follower does with a leader's answers. Pure."""
