"""What a person sees of a run: progress and tables in a terminal, report.html in a browser."""
