"""The loops of delivery: publish the command, claim and send, reconcile what stayed open."""
