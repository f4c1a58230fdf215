"""Who a client is and what it may do: authentication, authorization, quotas. Pure machines."""
