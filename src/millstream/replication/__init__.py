"""The state of a leader about its followers, and of a follower about its fetches. Pure."""
