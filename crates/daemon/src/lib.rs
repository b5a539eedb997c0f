//! What long-running FerroMQ programs share: options, shutdown, probes, metrics, logging.
