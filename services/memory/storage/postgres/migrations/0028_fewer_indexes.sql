-- Runs that live are found by their tenant or by when they are due; lists of a tenant's took this one instead.

DROP INDEX runs_unfinished;
