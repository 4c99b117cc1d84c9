"""Result files into tables and one page. Nothing here computes a result: a report is a function of its files."""
