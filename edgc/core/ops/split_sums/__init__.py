"""Products whose long side is split among programs, and the sums of what these found."""
