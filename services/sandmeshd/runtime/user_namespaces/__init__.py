"""Files and processes of an ordinary user's subordinate ids."""
