"""The tables of the inspector: tasks, what each waits for, and handles."""
