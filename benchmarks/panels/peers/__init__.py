"""What the peers' methods share. They run in an environment of their own: README.md."""
