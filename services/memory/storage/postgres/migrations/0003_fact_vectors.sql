-- Vectors of facts, 32-bit floats, little-endian; they leave with the text that they are of.

ALTER TABLE facts
    ADD COLUMN vector bytea NOT NULL DEFAULT '',
    ADD COLUMN vector_model text NOT NULL DEFAULT '';  -- provider/model; empty: there is none
