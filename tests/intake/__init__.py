"""From a batch of records to committed runs."""
