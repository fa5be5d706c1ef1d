"""What runs beside the requests: outbox relay, command relay and the consumers of the event stream."""
