"""What operators read of runs and jobs: why they wait, how far they are, what was run and found."""
