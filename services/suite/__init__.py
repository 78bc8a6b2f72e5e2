"""The services of one machine in one process, which reach each other in memory; the tools service has its own."""
