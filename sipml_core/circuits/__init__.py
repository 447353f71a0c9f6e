"""Traffic estimators, and bounds that schedulers share."""
