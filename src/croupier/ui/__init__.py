"""The web page: rows of the cluster's state in memory, streamed to browsers and cut to what each may see."""
