"""What a process serves and logs: HTTP servers, health, metrics, logs, orderly shutdown."""
