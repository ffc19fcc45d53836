"""What a run tells: metrics, terminal, plots, model card, trackers, Prometheus."""
