"""Small stores of each format of files that was released, and the script that made them."""
