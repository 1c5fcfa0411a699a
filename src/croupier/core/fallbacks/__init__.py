"""What a pod gets instead of what no node offers."""
