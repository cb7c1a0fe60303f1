"""The paper's tables and figures, with the numbers that it prints."""
