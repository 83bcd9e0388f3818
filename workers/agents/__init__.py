"""What an agent is, and how one run of it is journalled, replayed and limited."""
