"""This broker as the controller: its election, its events, what it decides, how others hear it."""
