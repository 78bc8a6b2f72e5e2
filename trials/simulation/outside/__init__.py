"""The world outside of the services of a simulated world: models, tools and webhook receivers."""
