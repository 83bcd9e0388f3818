"""Three `parley serve` processes on three brokers, one fault at a time, and what the checker then says."""
