"""What a broker tells of itself: metrics for Prometheus, health, slow requests, what waits."""
