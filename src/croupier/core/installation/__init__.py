"""What is wrong with an installation, and what it leaves behind."""
