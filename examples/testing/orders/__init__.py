"""A service that writes invoices for orders."""
