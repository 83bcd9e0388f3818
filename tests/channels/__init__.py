"""What every channel must do, and what each does by itself."""
