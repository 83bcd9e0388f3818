-- Sends for channel $1 and account $2 go on: whatever wait there was besides the pause, the channel asks for it again.
update send_holds set until = parley_now() where channel = $1 and account = $2
