"""The metadata store that the brokers of one machine share: its process and its clients."""
