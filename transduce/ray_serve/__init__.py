"""The server as a deployment of Ray Serve (docs/ray.md). Only deployment.py and replica.py import Ray."""
