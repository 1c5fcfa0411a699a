"""The admission webhooks: mutate, mark or refuse a pod before it is stored."""
