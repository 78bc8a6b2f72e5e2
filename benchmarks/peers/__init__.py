"""Others' programs and hand-written ones, as yardsticks. None is among our dependencies."""
