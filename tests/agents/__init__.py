"""What the agents room promises, without the turns room: its journal is a double here, the models are scripted."""
