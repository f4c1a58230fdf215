"""This broker in its cluster: registration, failure detection, requests to the controller."""
